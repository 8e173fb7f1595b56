"""Exports, deletes and renames what notes store about a user. Each method may run again after a crash."""

from __future__ import annotations

from typing import Any, Final

from plaza.core.valkey import Valkey
from plaza.new_domain.notes.keys import NOTES

# All keys with a username in their name.
PERSONAL_KEYS: Final = (NOTES,)


class NotesPersonalData:
    """A user's entries."""

    def __init__(self, valkey: Valkey) -> None:
        self._valkey = valkey

    async def export(self, username: str) -> dict[str, Any]:
        """Return a user's entries by id."""
        return {"notes": await self._valkey.call("HGETALL", NOTES(username))}

    async def delete(self, username: str) -> None:
        """Delete a user's entries."""
        await self._valkey.call("UNLINK", NOTES(username))

    async def rename(self, old: str, new: str) -> None:
        """Move a user's entries. On a cluster the two keys are on different nodes, so they are copied."""
        entries = await self._valkey.call("HGETALL", NOTES(old))
        if entries:
            await self._valkey.call("HSET", NOTES(new), *(part for entry in entries.items() for part in entry))
            await self._valkey.call("UNLINK", NOTES(old))
