"""Readable messages for regular expressions: a client that sends a wrong value gets words instead of the pattern."""

from __future__ import annotations

import re
from typing import Final

_MSGSPEC_MESSAGE: Final = re.compile(r"^Expected `str` matching regex (.*)$", re.DOTALL)
_MESSAGES: Final[dict[str, str]] = {}


# What only Python understands. JSON Schema has the patterns of ECMA-262, which clients check before they send.
_PYTHON_ONLY: Final = re.compile(r"\\[AZ]|\(\?[aiLmsux]|\(\?P")


def described_pattern(message: str, pattern: str) -> str:
    """Return the pattern for `Meta(pattern=…)`, and register the message for values that do not match it.

    A pattern means the same in Python and in ECMA-262. It ends with `$(?!\\n)`, since Python's `$` alone accepts a line
    break at the end.
    """
    assert not _PYTHON_ONLY.search(pattern), f"{pattern} is no pattern of ECMA-262"
    _MESSAGES[repr(pattern)] = message  # msgspec shows a pattern by its repr
    return pattern


def describe_violation(rule: str) -> str:
    """msgspec's message about a value; the registered one if it is about a pattern."""
    shown = _MSGSPEC_MESSAGE.match(rule)
    return _MESSAGES.get(shown[1], rule) if shown else rule
