"""Splits text into the words that are indexed and searched: folded, in any script.

Case, accents and width do not matter: `Été`, `ete` and `ＥＴＥ` are one word. Scripts that are written without spaces
(Chinese, Japanese, Thai, …) give one word per character, so that any part of a sentence is found.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from plaza.core.text_folding import fold

# Words of a text beyond this number are not indexed. PostgreSQL allows 1 MB for all words of a document.
MAX_WORDS: Final = 3_000
# Characters of a word that are compared. PostgreSQL allows 2,046 bytes per word.
MAX_WORD_CHARACTERS: Final = 64

# Scripts without spaces between words: Thai, Lao, Myanmar, Khmer, kana, bopomofo, Han and its extensions.
_UNSPACED = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ecd\u1000-\u1049\u1050-\u109d\u1780-\u17d3"
    "\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
)
_UNSPACED_CHARACTER = re.compile(f"[{_UNSPACED}]")
_UNSPACED_TEXT = re.compile(f"[{_UNSPACED}]+")


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
            break
    if word:
        found.append(word)
    return [word[:MAX_WORD_CHARACTERS] for word in found[:MAX_WORDS]]


def is_unspaced_text(text: str) -> bool:
    """Whether a text has only characters of scripts without spaces."""
    return _UNSPACED_TEXT.fullmatch(text) is not None


def is_unspaced(word: str) -> bool:
    """Whether a word is a single character of a script without spaces."""
    return len(word) == 1 and _UNSPACED_CHARACTER.match(word) is not None
