"""Plaza under a path of another application or of a proxy: `/community/app` instead of `/app`.

The path is `PLAZA_ROOT_PATH`, or what the ASGI server or framework reports (`root_path`). A request may contain it or
not, since some proxies remove it. Requests and responses outside of it cost nothing.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote

from plaza.core.http.bound_route import EncodedResponse
from plaza.core.http.exchange import SAFE_IN_PATH

# Attributes with an address. Texts of users cannot contain them: quotes are escaped there.
_ADDRESSES: Final = re.compile(rb'( (?:href|src|action|formaction|data-from)=")(?=/(?!/))')
_REDIRECTS: Final = (b"location", b"x-next", b"x-undo")


def unmounted(path: str, given: str, configured: str) -> str:
    """Return a path as Plaza's routes know it, without the root path that the server gave or the settings have."""
    for root in (given, configured):
        shorter = _without(path, root.rstrip("/"))
        if shorter is not None:
            return shorter
    return path


def _without(path: str, root: str) -> str | None:
    """Return an encoded path without its first segments; None if they are not those of the root path."""
    if not root:
        return None
    segments = path.split("/")
    count = root.count("/") + 1
    if unquote("/".join(segments[:count])) != root:
        return None
    return "/" + "/".join(segments[count:])


def mounted(response: EncodedResponse, root: str) -> EncodedResponse:
    """Return a response whose redirects, and links, forms and files of its page, begin with the root path."""
    prefix = quote(root, safe=SAFE_IN_PATH).encode()
    headers = [
        (name, prefix + value) if name in _REDIRECTS and _is_path(value) else (name, value)
        for name, value in response.headers
    ]
    body = response.body
    is_page = any(name == b"content-type" and value.startswith(b"text/html") for name, value in headers)
    if is_page and isinstance(body, bytes):
        body = _ADDRESSES.sub(rb"\g<1>" + prefix.replace(b"\\", rb"\\"), body)
    return EncodedResponse(response.status, headers, body)


def _is_path(address: bytes) -> bool:
    return address.startswith(b"/") and not address.startswith(b"//")
