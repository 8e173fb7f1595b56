"""Recovers the outbox entries of callers that died."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from time import monotonic

import structlog

from plaza.core import keys as core
from plaza.core.errors import Unavailable
from plaza.core.outbox import Outbox, OutboxEntry, PendingUpdates, Run, slot_tags
from plaza.core.sequences import chunks
from plaza.core.valkey import Valkey

# The caller of an entry this old is dead: three times PROJECTION_MS, which allows for clocks that differ.
ABANDONED_MS = 15_000

# How often `wait_until_settled` checks again.
SETTLED_POLL_SECONDS = 0.1

# Slots read in one batch: reading all of them takes 32 batches.
SLOTS_PER_BATCH = 512

log = structlog.get_logger("plaza.outbox")


class OutboxRecovery:
    """Finds outbox entries on all nodes, and settles the abandoned ones."""

    def __init__(self, run: Run, valkey: Valkey, outbox: Outbox) -> None:
        self._run = run
        self._valkey = valkey
        self._outbox = outbox

    async def recover(self, abandoned_ms: int = ABANDONED_MS) -> int:
        """Settle the outbox entries of callers that died. Returns how many owners had some."""
        owners = [owner for tags in chunks(slot_tags(), SLOTS_PER_BATCH) for owner in await self._owners(tags)]
        return sum([await self._try_recover_owner(slot, pending, abandoned_ms) for slot, pending in owners])

    async def _try_recover_owner(self, slot: str, pending: str, abandoned_ms: int) -> bool:
        try:
            return await self._outbox.finish(self._recover_owner(slot, pending, abandoned_ms))
        except Unavailable:
            raise
        except Exception:
            # One entry that is unreadable, or whose domain is not installed here, must not block the others.
            log.exception("outbox_entry_unreadable", pending=pending)
            return False

    async def _owners(self, tags: Sequence[str]) -> list[tuple[str, str]]:
        """Return the owners with outbox entries in some slots, as (set of the slot, hash of the owner)."""
        slots = [core.PENDING_SLOT(tag) for tag in tags]
        members = await self._valkey.batch([("SMEMBERS", slot) for slot in slots])
        return [(slot, pending) for slot, found in zip(slots, members, strict=True) for pending in found]

    async def _recover_owner(self, slot: str, pending: str, abandoned_ms: int) -> bool:
        library = pending.split(":")[1]
        entry = OutboxEntry(library, pending, slot)
        reply = await self._run(f"{library}_recover", [pending, slot], [next(self._outbox.operation_ids), abandoned_ms])
        if not reply:
            return False
        await self._outbox.settle(entry, PendingUpdates.from_reply(reply))
        return True

    async def wait_until_settled(self, name: str, abandoned_ms: int = ABANDONED_MS) -> None:
        """Wait until no outbox entry contains a name, such as a username.

        A popular name has entries at every moment. What started before this call is settled after two times
        `abandoned_ms` at the latest, so the wait ends then.
        """
        until = monotonic() + 2 * abandoned_ms / 1000
        while self._valkey.clustered and monotonic() < until and await self._has_entry_with(name):
            if not await self.recover(abandoned_ms):
                await asyncio.sleep(SETTLED_POLL_SECONDS)

    async def _has_entry_with(self, name: str) -> bool:
        for tags in chunks(slot_tags(), SLOTS_PER_BATCH):
            owners = [pending for _, pending in await self._owners(tags)]
            for fields in await self._valkey.batch([("HVALS", pending) for pending in owners]):
                if any(name in _words(entry) for entry in fields if entry.startswith("{")):
                    return True
        return False


def _words(entry: str) -> set[str]:
    """Return every word of the updates in an outbox entry."""
    return {word for update in json.loads(entry)["todo"] for word in json.loads(update)}
