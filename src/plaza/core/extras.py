"""Optional parts of Plaza, which an extra installs: `pip install 'plaza[postgres]'`."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Final, Literal

from plaza.core.errors import SettingError

Extra = Literal["media", "otel", "postgres", "recommend"]

# The packages of each extra that code asks for.
PACKAGES: Final[dict[Extra, tuple[str, ...]]] = {
    "media": ("pyvips",),
    "otel": ("opentelemetry.proto",),
    "postgres": ("asyncpg",),
    "recommend": ("numpy",),
}


@cache
def is_installed(extra: Extra) -> bool:
    """Whether the packages of an extra are installed."""
    try:
        return all(find_spec(package) is not None for package in PACKAGES[extra])
    except ModuleNotFoundError:  # the package that should contain it
        return False


def require_extra(extra: Extra, reason: str) -> None:
    """Raise `SettingError` with the command that installs an extra, unless it is installed."""
    if not is_installed(extra):
        raise SettingError(f"{reason} Install what it needs: pip install 'plaza[{extra}]'")
