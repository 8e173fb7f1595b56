"""What Lua answers, in Python's shapes. A hash comes from a function as a flat list, from a command as a dict."""

from __future__ import annotations

from collections.abc import Mapping


def as_dict(reply: list[str] | Mapping[str, str]) -> dict[str, str]:
    """A hash, however it came."""
    if isinstance(reply, Mapping):
        return dict(reply)
    return dict(zip(reply[::2], reply[1::2], strict=True))
