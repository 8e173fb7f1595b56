"""Names whose earlier tokens are void: those deleted, renamed or suspended, each with the moment.

A token cannot be taken back, so what it is checked against must be at hand: each process holds all cut-offs in memory.
"""

from __future__ import annotations

NEVER = -1


class Cutoffs:
    """`of(name)` is the Unix time in milliseconds up to which that name's tokens are void."""

    def __init__(self) -> None:
        self._ms: dict[str, int] = {}

    def of(self, username: str) -> int:
        """The latest cut-off of a name, or `NEVER`."""
        return self._ms.get(username, NEVER)
