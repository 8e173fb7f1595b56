"""For operators: the catalogue of keys, and the keys that are there, in the words of their documents."""

from __future__ import annotations

from typing import Any

from plaza.core.http.access import ADMIN
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.keyspace import Key
from plaza.keyspace.browser import KeyBrowser, is_readable
from plaza.web.routes_operator import SECTION, tabs
from plaza.web.routing import PageRoutes
from plaza.web.site import Site

page = PageRoutes()


@page.get("/operator/keys", access=ADMIN)
async def families(request: Request, site: Site, keyspace: KeyBrowser, q: str = "") -> Response[str]:
    """Every family of keys, by domain."""
    who = await site.visitors.of(request)
    found = [
        (catalogue.domain, [(name, key) for name, key in catalogue if _fits(key, q)])
        for catalogue in keyspace.catalogues
    ]
    # What the documents describe comes first, and what Plaza needs for itself after it.
    found.sort(key=lambda pair: not any(key.document for _, key in pair[1]))
    domains = [(domain, keys) for domain, keys in found if keys]
    return site.page(request, who, "operator-keys.html", section=SECTION, **tabs("Keys"), domains=domains, q=q)


def _fits(key: Key, words: str) -> bool:
    said = f"{key.pattern} {key.help} {key.contains} {key.document} {key.type}".lower()
    return all(word in said for word in words.lower().split())


@page.get("/operator/keys/{family}", access=ADMIN)
async def family(request: Request, site: Site, keyspace: KeyBrowser, family: str, cursor: str = "") -> Response[str]:
    """A family: what its document says, and some of its keys."""
    who = await site.visitors.of(request)
    listing = await keyspace.list_keys(family, cursor)
    return site.page(
        request,
        who,
        "operator-family.html",
        section=SECTION,
        **tabs("Keys"),
        **_about(keyspace, family),
        listing=listing,
    )


@page.get("/operator/keys/{family}/key", access=ADMIN)
async def key(request: Request, site: Site, keyspace: KeyBrowser, family: str, name: str) -> Response[str]:
    """A key and the first of what it holds."""
    who = await site.visitors.of(request)
    look = await keyspace.get_key(family, name)
    return site.page(
        request, who, "operator-key.html", section=SECTION, **tabs("Keys"), **_about(keyspace, family), look=look
    )


def _about(keyspace: KeyBrowser, name: str) -> dict[str, Any]:
    found = keyspace.family(name)
    return {"family": name, "key": found.key, "domain": found.domain, "open": is_readable(found.key)}
