"""Search results as HTML: an excerpt of a text with the matches marked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from markupsafe import Markup, escape

from plaza.search.words import fold, is_unspaced, words_of
from plaza.web.text_html import truncate_text

_WORDS: Final = re.compile(r"[^\W_]+")
# Characters before the first match that an excerpt shows.
_BEFORE: Final = 60


def highlight(text: str, words: Sequence[str], max_characters: int) -> Markup:
    """Return the part of a text around the first match, escaped, with every match marked."""
    spans = [span for found in _WORDS.finditer(text) for span in _matches(found, words)]
    start = 0
    if spans and spans[0][1] > max_characters:
        start = max(text.rfind(" ", 0, max(spans[0][0] - _BEFORE, 0)) + 1, spans[0][0] - max_characters // 2)
    end = start + len(truncate_text(text[start:], max_characters).removesuffix("…"))
    parts = [escape("…" if start else "")]
    for first, last in spans:
        if start <= first and last <= end:
            parts += (escape(text[start:first]), Markup("<mark>{}</mark>").format(text[first:last]))
            start = last
    return Markup("").join([*parts, escape(text[start:end]), escape("…" if end < len(text) else "")])


def _matches(found: re.Match[str], words: Sequence[str]) -> list[tuple[int, int]]:
    """Return which parts of a word of the text match: the whole word, or characters of a script without spaces."""
    whole = words_of(found[0])
    if len(whole) == 1 and not is_unspaced(whole[0]):
        return [found.span()] if any(whole[0].startswith(word) for word in words) else []
    at = found.start()
    return [(at + i, at + i + 1) for i, character in enumerate(found[0]) if fold(character) in words]
