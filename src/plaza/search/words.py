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

# Accents of Latin, Greek and Cyrillic letters, points of Hebrew, vowel signs and the long stroke of Arabic. The marks
# of other scripts are parts of their letters. Then what only changes the look: soft hyphens, joiners, directions, and
# the variants of emoji, which would be words otherwise.
_ACCENTS = re.compile(
    "[\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0640\u064b-\u065f\u0670"
    "\u00ad\u061c\u180b-\u180f\u200d-\u200f\u202a-\u202e\u2060-\u206f\u20d0-\u20ff\ufe00-\ufe0f\ufeff\U000e0100-\U000e01ef]"
)
# Letters with a stroke, without a dot, or joined, which Unicode does not take apart.
_PLAIN_LETTERS: Final = str.maketrans(
    {"ł": "l", "ø": "o", "đ": "d", "ħ": "h", "ŧ": "t", "ı": "i", "æ": "ae", "œ": "oe"}
)

# Scripts without spaces between words: Thai, Lao, Myanmar, Khmer, kana, bopomofo, Han and its extensions.
_UNSPACED = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ecd\u1000-\u1049\u1050-\u109d\u1780-\u17d3"
    "\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
)
_UNSPACED_CHARACTER = re.compile(f"[{_UNSPACED}]")


def fold(text: str) -> str:
    """Return text without the differences of case, accents and width. NUL, which PostgreSQL refuses, is a space."""
    if text.isascii():
        return text.replace("\0", " ").lower()
    # Twice, because `𝐇` becomes a capital letter before it becomes a small one, and small ones can have accents.
    small = unicodedata.normalize("NFKD", text.replace("\0", " ")).casefold()
    plain = _ACCENTS.sub("", unicodedata.normalize("NFKD", small)).translate(_PLAIN_LETTERS)
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
            break
    if word:
        found.append(word)
    return [word[:MAX_WORD_CHARACTERS] for word in found[:MAX_WORDS]]


def is_unspaced(word: str) -> bool:
    """Whether a word is a single character of a script without spaces."""
    return len(word) == 1 and _UNSPACED_CHARACTER.match(word) is not None
