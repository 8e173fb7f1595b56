"""Makes text from other clients safe to print on a terminal."""

from __future__ import annotations


def escape_controls(text: str) -> str:
    """Escape unprintable characters. Any client can create a key whose name contains terminal control codes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
