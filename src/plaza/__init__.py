"""Plaza: a community platform back end on one Valkey.

Other programs use `plaza.asgi`, `plaza.running` and `plaza.Settings` (docs/embedding.md).
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_MODULES = {"asgi": "plaza.embedding", "running": "plaza.embedding", "Settings": "plaza.core.settings"}


def __getattr__(name: str) -> Any:
    """Load what is asked for."""
    if name not in _MODULES:
        raise AttributeError(name)
    return getattr(import_module(_MODULES[name]), name)
