"""Whether a browser sent a request from one of our own pages."""

from __future__ import annotations

from collections.abc import Mapping

from plaza.core.http.problem_details import CrossOrigin


def require_same_origin(headers: Mapping[str, str]) -> None:
    """Refuse a request that comes from another site. Clients that are no browsers do not say where they come from."""
    fetch_site = headers.get("sec-fetch-site")
    is_unknown = "origin" not in headers if fetch_site is None else fetch_site == "none"
    if not is_unknown and not is_same_origin(headers):
        raise CrossOrigin("Pages of other sites may not do this.")


def is_same_origin(headers: Mapping[str, str]) -> bool:
    """Whether the browser states that a request comes from one of our pages."""
    fetch_site = headers.get("sec-fetch-site")
    if fetch_site is not None:
        return fetch_site == "same-origin"
    scheme, _, host = headers.get("origin", "").partition("://")
    return bool(scheme) and host == headers.get("host")
