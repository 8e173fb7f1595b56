"""Readable messages for regular expressions: a client that sends a wrong value gets words instead of the pattern."""

from __future__ import annotations

import re
from typing import Final

_MSGSPEC_MESSAGE: Final = re.compile(r"^Expected `str` matching regex (.*)$", re.DOTALL)
_MESSAGES: Final[dict[str, str]] = {}


def described_pattern(message: str, pattern: str) -> str:
    """Return the pattern for `Meta(pattern=…)`, and register the message for values that do not match it."""
    _MESSAGES[repr(pattern)] = message  # msgspec shows a pattern by its repr
    return pattern


def describe_violation(rule: str) -> str:
    """msgspec's message about a value; the registered one if it is about a pattern."""
    shown = _MSGSPEC_MESSAGE.match(rule)
    return _MESSAGES.get(shown[1], rule) if shown else rule
