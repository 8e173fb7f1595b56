"""`did you mean`: names of users and tags that resemble a word of a query."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from plaza.core.text_folding import fold
from plaza.search.names import TAGS, NameIndex
from plaza.search.query import MAX_QUERY_CHARACTERS, SIGNS

# Corrections that are tried for one word, the nearest first.
MAX_TRIED: Final = 3
MIN_CHARACTERS: Final = 3
MAX_CHARACTERS: Final = 40
MAX_WORDS_CORRECTED: Final = 3

# What is excluded with `-` is not corrected: a phrase is passed over, and no name begins with it.
_WORD = re.compile(r"-\"[^\"]*\"|(?<!\S)\"?(?P<mark>#|from:@?|@)?(?P<name>[^\s\"#@:-][^\s\"#@:]*)", re.IGNORECASE)


class Correction(Struct, frozen=True):
    """A query with one name corrected."""

    text: str
    kind: str
    key: str


class Corrections:
    """Corrects the names in a query."""

    def __init__(self, names: NameIndex) -> None:
        self._names = names

    async def suggest(self, text: str) -> list[Correction]:
        """Return the query with one of its names corrected, the likeliest first. At most six statements."""
        found: list[Correction] = []
        for word in list(_words(text))[:MAX_WORDS_CORRECTED]:
            for kind in _kinds(word["mark"]):
                for name in (await self._names.similar(kind, word["name"]))[:MAX_TRIED]:
                    # A word of a display name is corrected to this word, which also finds the other users with it.
                    right = name.key if word["mark"] or kind == TAGS or fold(name.key) == name.name else name.name
                    corrected = text[: word.start("name")] + right + text[word.end("name") :]
                    if len(corrected) <= MAX_QUERY_CHARACTERS:
                        found.append(Correction(corrected, kind, name.key))
        return found


def _words(text: str) -> Iterator[re.Match[str]]:
    words = _WORD.finditer(text.translate(SIGNS))
    return (word for word in words if MIN_CHARACTERS <= len(word["name"] or "") <= MAX_CHARACTERS)


def _kinds(mark: str | None) -> tuple[str, ...]:
    if mark == "#":
        return (TAGS,)
    return ("users",) if mark else ("users", TAGS)
