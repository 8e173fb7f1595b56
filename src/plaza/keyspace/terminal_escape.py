"""What is shown on a terminal of what strangers wrote."""

from __future__ import annotations


def harmless(text: str) -> str:
    """Anybody may have named a key: what would steer a terminal is spelled out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
