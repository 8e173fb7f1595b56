"""Atom feeds (RFC 4287): a list of entries as XML, with an ETag.

Every entry has an author, so a feed needs none. Addresses begin with the public URL, never with a header of the
request: shared caches could keep a forged one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final
from xml.etree.ElementTree import Element, SubElement, tostring

from msgspec import Struct

from plaza.core.http.request import Request
from plaza.core.http.responses import Response

MEDIA_TYPE: Final = "application/atom+xml; charset=utf-8"
MAX_TITLE_CHARACTERS: Final = 120
ENTRIES: Final = 50

_NAMESPACE: Final = "http://www.w3.org/2005/Atom"
# What XML 1.0 cannot contain, in any notation.
_NOT_IN_XML: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
# The last second of the year 9999: other services may write any number as a time.
_MAX_TIME_MS: Final = 253_402_300_799_000


class AtomEntry(Struct, frozen=True):
    """One entry. `id` is an IRI that never changes; `path` leads to its page, `link` elsewhere if it has one."""

    id: str
    title: str
    path: str
    author: str
    published_ms: float
    updated_ms: float
    text: str = ""
    link: str = ""


def atom_response(
    request: Request, base: str, path: str, page: str, title: str, entries: Sequence[AtomEntry]
) -> Response[bytes]:
    """Return a feed, or 304 if the client has this version. `path` is the feed's own, `page` of the same list."""
    body = render_feed(base, path, page, title, entries)
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = (("etag", etag), ("cache-control", "public, no-cache"))
    known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    if etag in known or "*" in known:
        return Response(status=304, headers=headers)
    return Response(body, headers=headers, media_type=MEDIA_TYPE)


def render_feed(base: str, path: str, page: str, title: str, entries: Sequence[AtomEntry]) -> bytes:
    """Return the XML of a feed. The same entries give the same bytes."""
    feed = Element("feed", xmlns=_NAMESPACE)
    _add(feed, "id", base + path)
    _add(feed, "title", title)
    _add(feed, "updated", _time(max((entry.updated_ms for entry in entries), default=0)))
    SubElement(feed, "link", rel="self", type="application/atom+xml", href=base + path)
    SubElement(feed, "link", rel="alternate", type="text/html", href=base + page)
    for entry in entries:
        _add_entry(feed, base, entry)
    xml: str = tostring(feed, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{xml}'.encode()


def _add_entry(feed: Element, base: str, entry: AtomEntry) -> None:
    element = SubElement(feed, "entry")
    _add(element, "id", entry.id if ":" in entry.id else base + entry.id)
    _add(element, "title", " ".join(entry.title.split())[:MAX_TITLE_CHARACTERS] or "Untitled")
    _add(element, "published", _time(entry.published_ms))
    _add(element, "updated", _time(entry.updated_ms))
    _add(SubElement(element, "author"), "name", entry.author or "unknown")
    SubElement(element, "link", rel="alternate", type="text/html", href=base + entry.path)
    if entry.link:
        SubElement(element, "link", rel="related", href=_NOT_IN_XML.sub("", entry.link))
    if entry.text:
        _add(element, "content", entry.text).set("type", "text")


def _add(parent: Element, name: str, text: str) -> Element:
    child = SubElement(parent, name)
    child.text = _NOT_IN_XML.sub("", text)
    return child


def _time(ms: float) -> str:
    return f"{datetime.fromtimestamp(min(max(ms, 0), _MAX_TIME_MS) / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
