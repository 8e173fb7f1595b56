"""Runs the reads of many invariants with as few commands as possible.

Equal reads are sent once. Reads of single members of one key (the scores of hundreds of posts in `explore:feed`) become
one command with many members. `EXISTS` is sent for a hundred keys at a time; only if not all of them exist, each key is
checked alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from plaza.core.invariants import Command, Entry, Invariant
from plaza.core.sequences import chunks
from plaza.keyspace.audit.scope import Scope
from plaza.keyspace.family_matching import KeyFamily

# The command for one member → the command for many members of the same key.
_MULTI_COMMANDS = {"ZSCORE": "ZMSCORE", "SISMEMBER": "SMISMEMBER", "HGET": "HMGET"}
# Members of one key, or keys, per command.
CHUNK_SIZE = 100

Violation = tuple[KeyFamily, Invariant, Entry]
Send = Callable[[Sequence[Command]], Awaitable[list[Any]]]


class QueryBatch:
    """Collects the reads of invariants, sends them and evaluates the invariants."""

    __slots__ = ("_checks", "_existence", "_member_reads", "_scope", "_single_reads", "_size")

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        # Each read has a slot, the index of its reply. By command, key and member:
        self._member_reads: dict[Any, dict[Any, dict[Any, int]]] = {name: {} for name in _MULTI_COMMANDS}
        self._existence: dict[Any, int] = {}
        self._single_reads: dict[Command, int] = {}
        self._size = 0
        self._checks: list[tuple[KeyFamily, Invariant, Entry, list[int]]] = []

    def add(self, family: KeyFamily, rule: Invariant, entry: Entry) -> None:
        """Add the reads that an invariant needs for an entry, if it is to be checked."""
        reads = self._scope.reads(rule, entry)
        if reads is None:
            return
        slots = []
        for command in reads:
            name: Any = command[0]
            target: Any = command[1]
            keys = self._member_reads.get(name)
            known: dict[Any, int] | None
            if keys is not None:
                known = keys.get(target)
                if known is None:
                    known = keys[target] = {}
                target = command[2]
            elif name == "EXISTS":
                known = self._existence
            else:
                known, target = self._single_reads, command
            slot = known.get(target)
            if slot is None:
                slot = known[target] = self._size
                self._size += 1
            slots.append(slot)
        self._checks.append((family, rule, entry, slots))

    async def violations(self, send: Send, now: Callable[[], int], *, one_server: bool) -> Iterator[Violation]:
        """Send all reads. Returns the invariants that seem violated."""
        replies: list[Any] = [None] * self._size
        has_errors = await self._read_members(send, replies)
        await self._read_existence(send, replies, one_server)
        return self._evaluate(replies, now(), has_errors)

    def _evaluate(self, replies: list[Any], now: int, has_errors: bool) -> Iterator[Violation]:
        for family, rule, entry, slots in self._checks:
            own_replies = [replies[slot] for slot in slots]
            if has_errors and any(isinstance(reply, Exception) for reply in own_replies):
                continue  # that key has the wrong type, which the scan reports for the key itself
            if rule.check(entry, own_replies, now) is not None:
                yield family, rule, entry

    async def _read_members(self, send: Send, replies: list[Any]) -> bool:
        """Fill in the replies of member reads and single reads. Returns whether any reply is an error."""
        multi: list[Command] = []
        multi_slots: list[list[int]] = []
        single: dict[Command, int] = self._single_reads
        reads = ((name, key, members) for name, keys in self._member_reads.items() for key, members in keys.items())
        for name, key, members in reads:
            if len(members) == 1:
                ((member, slot),) = members.items()
                single[name, key, member] = slot
                continue
            for chunk in chunks(members.items(), CHUNK_SIZE):
                multi.append((_MULTI_COMMANDS[name], key, *(member for member, _ in chunk)))
                multi_slots.append([slot for _, slot in chunk])
        has_errors = False
        for slot, reply in zip(single.values(), await send(list(single)), strict=True):
            replies[slot] = reply
            has_errors = has_errors or isinstance(reply, Exception)
        for slots, reply in zip(multi_slots, await send(multi), strict=True):
            has_errors = has_errors or isinstance(reply, Exception)
            member_replies = [reply] * len(slots) if isinstance(reply, Exception) else reply
            for slot, member_reply in zip(slots, member_replies, strict=True):
                replies[slot] = member_reply
        return has_errors

    async def _read_existence(self, send: Send, replies: list[Any], one_server: bool) -> None:
        single = list(self._existence.items())
        if one_server:  # on a cluster the keys are in different slots
            groups = list(chunks(single, CHUNK_SIZE))
            counts = await send([("EXISTS", *(key for key, _ in chunk)) for chunk in groups])
            single = []
            for chunk, count in zip(groups, counts, strict=True):
                if count == len(chunk):
                    for _, slot in chunk:
                        replies[slot] = 1
                else:
                    single += chunk
        for (_, slot), reply in zip(single, await send([("EXISTS", key) for key, _ in single]), strict=True):
            replies[slot] = reply
