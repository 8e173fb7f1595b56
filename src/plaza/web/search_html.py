"""Search results as HTML: an excerpt of a text with the matches marked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from typing import Final

from markupsafe import Markup, escape

from plaza.core.text_folding import fold
from plaza.search.query import Query
from plaza.search.words import is_unspaced_text, is_word_character
from plaza.web.text_html import truncate_text

# Characters before the first match that an excerpt shows.
_BEFORE: Final = 60
# The longest text that users write. Other services can write any length.
_MAX_SEARCHED: Final = 10_000
# Only parts with a word of the query are read character by character, which takes 1 µs each.
_PARTS: Final = re.compile(r"\S{1,200}")


def highlight(text: str, query: Query, max_characters: int) -> Markup:
    """Return the part of a text around the first match, escaped, with every match marked."""
    spans = _matches(text, query)
    first_span = next(spans, (0, 0))
    start = 0
    if first_span[1] > max_characters:
        start = max(text.rfind(" ", 0, max(first_span[0] - _BEFORE, 0)) + 1, first_span[0] - max_characters // 2)
    end = start + len(truncate_text(text[start:], max_characters).removesuffix("…"))
    parts = [escape("…" if start else "")]
    for first, last in chain([first_span] if first_span[1] else [], spans):
        if last > end:
            break
        parts += (escape(text[start:first]), Markup("<mark>{}</mark>").format(text[first:last]))
        start = last
    return Markup("").join([*parts, escape(text[start:end]), escape("…" if end < len(text) else "")])


def _matches(text: str, query: Query) -> Iterator[tuple[int, int]]:
    """Yield where a text has a tag of the query, a word, or characters of a script without spaces, in order."""
    wanted = (*query.words, *query.tags)
    for part in _PARTS.finditer(text, 0, _MAX_SEARCHED):
        folded = fold(part[0])
        if any(word in folded for word in wanted):
            yield from _matches_between(text, part.start(), part.end(), query)


def _matches_between(text: str, start: int, stop: int, query: Query) -> Iterator[tuple[int, int]]:
    end = start
    for is_tag_character, characters in groupby(text[start:stop], _is_tag_character):
        start, end = end, end + sum(1 for _ in characters)
        if not is_tag_character:
            continue
        if start and text[start - 1] == "#" and fold(text[start:end]) in query.tags:
            yield start - 1, end
        else:
            yield from _words_between(text, start, end, query)


def _is_tag_character(character: str) -> bool:
    return character == "_" or is_word_character(character)


def _words_between(text: str, start: int, end: int, query: Query) -> Iterator[tuple[int, int]]:
    """Yield which words of a part match. `_` separates words. Of scripts without spaces, whole phrases match."""
    words, beginnings = set(query.words), query.beginnings
    first = start
    for (_, unspaced), characters in groupby(text[start:end], lambda each: (each == "_", is_unspaced_text(fold(each)))):
        last = first + sum(1 for _ in characters)
        if unspaced:
            yield from _phrases_between(text, first, last, query.unspaced_texts)
        elif (word := fold(text[first:last])) in words or word.startswith(beginnings):
            yield first, last
        first = last


def _phrases_between(text: str, start: int, end: int, phrases: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield where characters of a script without spaces have a phrase; what overlaps is one match."""
    positions = [position for position in range(start, end) for _ in fold(text[position])]
    folded = "".join(map(fold, text[start:end]))
    found: set[int] = set()
    for phrase in phrases:
        at = folded.find(phrase)
        while at >= 0:
            found.update(positions[at : at + len(phrase)])
            at = folded.find(phrase, at + 1)
    first = None
    for position in range(start, end + 1):
        if position in found:
            first = position if first is None else first
        elif first is not None:
            yield first, position
            first = None
