"""Rules in words. A regular expression says to a machine what is allowed; who breaks it is told what it means."""

from __future__ import annotations

import re
from typing import Final

_SHOWN: Final = re.compile(r"^Expected `str` matching regex (.*)$", re.DOTALL)
_WORDS: Final[dict[str, str]] = {}


def in_words(words: str, pattern: str) -> str:
    """The pattern, which `Meta(pattern=…)` takes; who breaks it will be told `words`."""
    _WORDS[repr(pattern)] = words  # as msgspec shows it
    return pattern


def told(rule: str) -> str:
    """What msgspec says of a value, in words if there are any."""
    shown = _SHOWN.match(rule)
    return _WORDS.get(shown[1], rule) if shown else rule
