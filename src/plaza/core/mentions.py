"""Mentions: `@name` in a text that a user wrote.

A name in an e-mail address or a web address is no mention. Whether a user has the name is looked up where it matters:
pages link existing users only, notifications tell them.
"""

from __future__ import annotations

import re
from typing import Final

from plaza.core.tokens import is_username

# A text mentions at most so many users; the rest is plain text. So no user notifies a whole community at once.
MAX_MENTIONS: Final = 20

# Without groups. A full stop at the end belongs to the sentence.
MENTION_PATTERN: Final = r"(?<![\w/.@-])@[A-Za-z0-9._-]{1,31}"
_FIND: Final = re.compile(rf"https?://\S+|({MENTION_PATTERN})")


def mentioned_name(mention: str) -> str | None:
    """Return the username of a match of `MENTION_PATTERN`; None if it cannot be one."""
    name = mention[1:].rstrip(".")
    return name if is_username(name) else None


def mentions_in(text: str) -> list[str]:
    """Return the usernames that a text mentions, each once, in order; at most `MAX_MENTIONS`."""
    names: dict[str, None] = {}
    for match in _FIND.finditer(text):
        name = mentioned_name(match[1]) if match[1] else None
        if name is not None:
            names[name] = None
            if len(names) == MAX_MENTIONS:
                break
    return list(names)
