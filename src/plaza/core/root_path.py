"""The path under which users reach Plaza: `/community` behind a proxy or in another application, else empty.

Plaza's own paths (`/app/articles`) are without it everywhere in the code: routes, links, redirects, forms. It is added
where they leave: to HTML and redirects in one place (`core/http/mounting.py`), and by `with_root` where a JSON response
contains an address.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final
from urllib.parse import urlsplit

from plaza.core.settings import Settings

# Of the current request.
ROOT_PATH: Final[ContextVar[str]] = ContextVar("root_path", default="")


def with_root(path: str) -> str:
    """Return the address of a path for clients."""
    return ROOT_PATH.get() + path


def without_root(address: str) -> str:
    """Return the path of such an address."""
    return address.removeprefix(ROOT_PATH.get())


def public_url(settings: Settings) -> str:
    """Return the URL under which users reach Plaza, without a slash at the end.

    It never comes from a header of the request: shared caches could keep a forged one.
    """
    if not settings.public_url:
        return f"http://{settings.host}:{settings.port}{ROOT_PATH.get() or settings.mount_path}"
    parts = urlsplit(settings.public_url)
    return f"{parts.scheme}://{parts.netloc}{settings.mount_path}"
