"""The operators' key browser: the catalogue of key families, and the existing keys with their documentation."""

from __future__ import annotations

from typing import Any, Final

from plaza.core.http.access import ADMIN
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.keyspace import Key
from plaza.keyspace.browser import KeyBrowser, is_readable
from plaza.web.operator_navigation import operator_page
from plaza.web.page_responses import PageResponses
from plaza.web.page_routes import PageRoutes

page = PageRoutes()


# What the keys of an owner are asked by, and the part of their names.
OWNERS: Final = {"user": "username", "post": "post", "article": "article", "item": "item"}


@page.get("/operator/keys", access=ADMIN)
async def families(
    request: Request, site: PageResponses, keyspace: KeyBrowser, q: str = "", of: str = "", id: str = ""
) -> Response[str]:
    """List the key families by domain; `q` filters them, or is the name of a key; `of` and `id` name an owner."""
    visitor = await site.visitors.from_request(request)
    if of in OWNERS and id:
        keys = await keyspace.keys_of(OWNERS[of], id[:200])
        return operator_page(request, site, visitor, "operator-owner-keys.html", "Keys", keys=keys, of=of, id=id[:200])
    found = [
        (catalogue.domain, [(name, key) for name, key in catalogue if _matches(key, q)])
        for catalogue in keyspace.catalogues
    ]
    # Domains with documented keys come first.
    found.sort(key=lambda pair: not any(key.document for _, key in pair[1]))
    domains = [(domain, keys) for domain, keys in found if keys]
    context: dict[str, Any] = {"domains": domains, "q": q}
    context["found_key"] = await keyspace.find_key(q.strip()) if q else None
    return operator_page(request, site, visitor, "operator-keys.html", "Keys", **context)


def _matches(key: Key, query: str) -> bool:
    text = f"{key.pattern} {key.help} {key.contains} {key.document} {key.type}".lower()
    return all(word in text for word in query.lower().split())


@page.get("/operator/keys/{family}", access=ADMIN)
async def family(
    request: Request, site: PageResponses, keyspace: KeyBrowser, family: str, cursor: str = ""
) -> Response[str]:
    """Show a key family: its documentation and some of its keys."""
    visitor = await site.visitors.from_request(request)
    listing = await keyspace.list_keys(family, cursor)
    context = {**_family_context(keyspace, family), "listing": listing}
    return operator_page(request, site, visitor, "operator-key-family.html", "Keys", **context)


@page.get("/operator/keys/{family}/key", access=ADMIN)
async def key(request: Request, site: PageResponses, keyspace: KeyBrowser, family: str, name: str) -> Response[str]:
    """Show a key and the first of its entries."""
    visitor = await site.visitors.from_request(request)
    details = await keyspace.get_key(family, name)
    context = {**_family_context(keyspace, family), "details": details}
    return operator_page(request, site, visitor, "operator-key.html", "Keys", **context)


def _family_context(keyspace: KeyBrowser, name: str) -> dict[str, Any]:
    found = keyspace.family(name)
    return {"family": name, "key": found.key, "domain": found.domain, "open": is_readable(found.key)}
