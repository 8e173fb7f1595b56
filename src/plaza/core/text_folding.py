"""Folds text, so that it is found whatever its case, accents and width: `Été`, `ete` and `ＥＴＥ` are the same."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

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


def fold(text: str) -> str:
    """Return text without the differences of case, accents and width. NUL, which PostgreSQL refuses, is a space."""
    if text.isascii():
        return text.replace("\0", " ").lower()
    # Twice, because `𝐇` becomes a capital letter before it becomes a small one, and small ones can have accents.
    small = unicodedata.normalize("NFKD", text.replace("\0", " ")).casefold()
    plain = _ACCENTS.sub("", unicodedata.normalize("NFKD", small)).translate(_PLAIN_LETTERS)
    return unicodedata.normalize("NFC", plain)
