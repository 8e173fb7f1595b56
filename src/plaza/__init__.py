"""Plaza: a community platform back end on one Valkey.

Other programs use `plaza.asgi`, `plaza.running` and `plaza.Settings` (docs/embedding.md).
"""

from importlib import import_module
from typing import Any

__version__: str

_MODULES = {"asgi": "plaza.embedding", "running": "plaza.embedding", "Settings": "plaza.core.settings"}


def __getattr__(name: str) -> Any:
    """Load what is asked for. The version alone takes 50 ms, more than the rest of a small process needs to start."""
    if name == "__version__":
        from importlib.metadata import version

        return version("plaza")
    if name not in _MODULES:
        raise AttributeError(name)
    return getattr(import_module(_MODULES[name]), name)
