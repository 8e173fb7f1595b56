"""Atom feeds: valid by RFC 4287, whatever users write."""

from __future__ import annotations

import re
from typing import Final
from xml.etree.ElementTree import Element, fromstring

from plaza.core.atom import AtomEntry, render_feed

ATOM: Final = "{http://www.w3.org/2005/Atom}"
DATE: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
IRI: Final = re.compile(r"(?:https?://[^\s<>\"]+|urn:uuid:[0-9a-f-]{36})")
# How often an element of RFC 4287, 4.1.1 and 4.1.2, may occur: at least, at most.
FEED: Final = {"id": (1, 1), "title": (1, 1), "updated": (1, 1), "link": (1, 99), "entry": (0, 99)}
ENTRY: Final = {
    "id": (1, 1),
    "title": (1, 1),
    "updated": (1, 1),
    "published": (0, 1),
    "author": (1, 99),
    "content": (0, 1),
    "link": (1, 99),
}


def assert_valid_feed(xml: bytes) -> list[Element]:
    """Check a feed against the rules of RFC 4287 for what Plaza uses of it. Returns its entries."""
    feed = fromstring(xml)
    assert feed.tag == f"{ATOM}feed"
    _check(feed, FEED)
    assert [link.get("rel") for link in feed.findall(f"{ATOM}link")].count("self") == 1
    entries = feed.findall(f"{ATOM}entry")
    for entry in entries:
        _check(entry, ENTRY)
        assert entry.findtext(f"{ATOM}author/{ATOM}name")
    ids = [entry.findtext(f"{ATOM}id") for entry in entries]
    assert len(ids) == len(set(ids))
    return entries


def _check(element: Element, rules: dict[str, tuple[int, int]]) -> None:
    counts = dict.fromkeys(rules, 0)
    for child in element:
        counts[child.tag.removeprefix(ATOM)] += 1  # a KeyError is an element that the RFC does not allow here
    for name, (least, most) in rules.items():
        assert least <= counts[name] <= most, name
    for name in ("updated", "published"):
        for date in element.findall(f"{ATOM}{name}"):
            assert DATE.fullmatch(date.text or "")
    assert IRI.fullmatch(element.findtext(f"{ATOM}id") or "")
    alternates = [(link.get("type"), link.get("hreflang")) for link in element if link.get("rel") == "alternate"]
    assert len(alternates) == len(set(alternates))
    assert all(link.get("href") for link in element.findall(f"{ATOM}link"))


def entry(number: int, text: str, updated_ms: float = 0) -> AtomEntry:
    id = f"urn:uuid:{number:08x}-2222-4333-8444-555555555555"
    return AtomEntry(id, text, f"/app/posts/{number}", "ana", 0, updated_ms, text)


def test_a_feed_is_valid_with_any_text() -> None:
    texts = ["", "<b>&amp;</b>]]>", "\x00\x0b\ud800 \ufffe", "long " * 500, "\u202eabc", "line\nbreak"]
    entries = [entry(number, text, 1e300 if number else -5) for number, text in enumerate(texts)]
    found = assert_valid_feed(render_feed("http://x.example", "/f.atom", "/f", "A <title>", entries))
    assert [each.findtext(f"{ATOM}title") for each in found][:2] == ["Untitled", "<b>&amp;</b>]]>"]
    assert found[1].findtext(f"{ATOM}content") == "<b>&amp;</b>]]>"


def test_an_empty_feed_is_valid_and_always_the_same() -> None:
    xml = render_feed("http://x.example", "/f.atom", "/f", "Empty", [])
    assert assert_valid_feed(xml) == []
    assert xml == render_feed("http://x.example", "/f.atom", "/f", "Empty", [])
