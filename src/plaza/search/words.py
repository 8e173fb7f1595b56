"""Splits text into the words that are indexed and searched: folded, in any script.

Case, accents and width do not matter: `Été`, `ete` and `ＥＴＥ` are one word. Scripts that are written without spaces
(Chinese, Japanese, Thai, …) give one word per character, so that any part of a sentence is found.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

# Words of a text beyond this number are not indexed. PostgreSQL allows 1 MB for all words of a document.
MAX_WORDS: Final = 3_000
# Characters of a word that are compared. PostgreSQL allows 2,046 bytes per word.
MAX_WORD_CHARACTERS: Final = 64

# Accents of Latin, Greek and Cyrillic letters, points of Hebrew and vowel signs of Arabic. The marks of other scripts
# are parts of their letters.
_ACCENTS = re.compile(
    "[\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u064b-\u065f\u0670]"
)

# Scripts without spaces between words: Thai, Lao, Myanmar, Khmer, kana, bopomofo, Han and its extensions.
_UNSPACED = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ecd\u1000-\u109f\u1780-\u17d3"
    "\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
)
_UNSPACED_CHARACTER = re.compile(f"[{_UNSPACED}]")


def fold(text: str) -> str:
    """Return text without the differences of case, accents and width. NUL, which PostgreSQL refuses, is a space."""
    plain = _ACCENTS.sub("", unicodedata.normalize("NFKD", text.replace("\0", " ").casefold()))
    return unicodedata.normalize("NFC", plain)


def is_word_character(character: str) -> bool:
    """Whether a character is part of a word: a letter, a digit or a mark."""
    return character.isalnum() or unicodedata.category(character)[0] == "M"


def words_of(text: str) -> list[str]:
    """Return the folded words of a text, in order, at most `MAX_WORDS`."""
    found: list[str] = []
    word = ""
    for character in fold(text):
        if _UNSPACED_CHARACTER.match(character):
            if word:
                found.append(word)
            found.append(character)
            word = ""
        elif is_word_character(character):
            word += character
        elif word:
            found.append(word)
            word = ""
        if len(found) >= MAX_WORDS:
            return found[:MAX_WORDS]
    if word:
        found.append(word)
    return [word[:MAX_WORD_CHARACTERS] for word in found]


def is_unspaced(word: str) -> bool:
    """Whether a word is a single character of a script without spaces."""
    return len(word) == 1 and _UNSPACED_CHARACTER.match(word) is not None
