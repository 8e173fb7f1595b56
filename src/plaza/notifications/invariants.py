"""What the audit checks: the lists of a user match, and each actor did what the source data says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import msgspec

from plaza.core.event_progress import EventProgress, NoProgress
from plaza.core.invariants import Command, Entry, Invariant, Invariants, Violation, not_compared
from plaza.core.notification_source import Absence, Activity
from plaza.core.number_parsing import parse_int
from plaza.core.sequences import chunks
from plaza.core.valkey import ReplyError, Valkey, scan_pages
from plaza.core.wrong_type import WrongKeyType, is_wrong_type
from plaza.notifications.jobs import GROUP
from plaza.notifications.keys import (
    CATALOGUE,
    NOTIFICATION_ACTORS,
    NOTIFICATION_GROUPS,
    NOTIFICATIONS,
    NOTIFICATIONS_UNREAD,
)
from plaza.notifications.recipient_index import group_of
from plaza.notifications.recorder import Recorder

READS: Final = 4
# Groups that are read together, and that are read again together.
BATCH: Final = 50
MAX_SUSPECTS: Final = 2_000

GroupKey = tuple[str, str]  # a recipient, and the id of a group
Actors = set[tuple[str, int, int | None]]  # with the stored and the real time


def _read_group(entry: Entry) -> Sequence[Command]:
    name, (about, _, _) = entry.parts[0], entry.member.rpartition(":")
    latest = ("ZRANGE", NOTIFICATION_ACTORS(name, entry.member), 0, 0, "REV", "WITHSCORES")
    return ("HGET", NOTIFICATION_GROUPS(name), about), latest


def _check_group(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    numbers = _numbers(replies[0])
    if entry.member.rpartition(":")[2] not in numbers:
        return f"has {entry.member}, which is not in `{NOTIFICATION_GROUPS(entry.parts[0])}`"
    if replies[1] and float(replies[1][0][1]) != float(entry.value):
        return f"has {entry.member} at {entry.value}, but its latest actor is of {replies[1][0][1]}"
    return None


def _read_listed(entry: Entry) -> Sequence[Command]:
    return (("ZSCORE", NOTIFICATIONS(entry.parts[0]), entry.member),)


def _check_listed(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    if replies[0] is not None and float(replies[0]) == float(entry.value):
        return None
    return f"has {entry.member} at {entry.value}, but the list has it at {replies[0]}"


def _read_actors(entry: Entry) -> Sequence[Command]:
    return (("ZSCORE", NOTIFICATIONS(entry.parts[0]), entry.parts[1]),)


def _check_actors(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    return None if replies[0] is not None else "belongs to no notification"


def _read_groups(entry: Entry) -> Sequence[Command]:
    ids = [f"{entry.member}:{number}" for number in sorted(_numbers(entry.value))]
    return tuple(("ZSCORE", NOTIFICATIONS(entry.parts[0]), id) for id in ids)


def _check_groups(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    if replies and all(reply is not None for reply in replies):
        return None
    return f"has groups of {entry.member} that are not in the list"


def _numbers(stored: Any) -> set[str]:
    """Return the numbers of the groups of a subject; none if another service wrote something else."""
    try:
        rows = msgspec.json.decode(stored or "[]", type=list[tuple[int | float | str, ...]])
    except msgspec.DecodeError:
        return set()
    return {str(row[0]) for row in rows}


INVARIANTS = Invariants(
    [
        Invariant("group", NOTIFICATIONS, _read_group, _check_group),
        Invariant("listed", NOTIFICATIONS_UNREAD, _read_listed, _check_listed),
        Invariant("listed", NOTIFICATION_GROUPS, _read_groups, _check_groups),
        Invariant("grouped", NOTIFICATION_ACTORS, _read_actors, _check_actors, per_key=True),
    ],
    {"notifications": NOTIFICATIONS, "notification": NOTIFICATIONS},
)


class NotificationInspector:
    """Compares actors with the source data. While events wait, groups are behind, and nothing is wrong."""

    family = NOTIFICATION_ACTORS.pattern
    checks_valkey = True

    def __init__(self, valkey: Valkey, recorder: Recorder) -> None:
        self._valkey = valkey
        self._recorder = recorder
        self._progress = EventProgress(valkey, sorted({source.stream for source in recorder.sources}), GROUP)

    async def inspect(self) -> AsyncIterator[Violation]:
        """Yield the groups with actors who did not do it."""
        if not await self._progress.has_started():
            return  # no worker has told anyone anything yet
        try:
            if not await self._progress.has_caught_up():
                await self._progress.wait()
            async for violation in self._compare():
                yield violation
        except NoProgress:
            yield not_compared(NOTIFICATION_ACTORS.pattern, GROUP)

    async def _compare(self) -> AsyncIterator[Violation]:
        suspects: dict[GroupKey, Actors] = {}
        async for groups in self._groups():
            suspects |= await self._wrong(groups)
            if len(suspects) >= MAX_SUSPECTS:
                for violation in await self._confirmed(suspects):
                    yield violation
                suspects = {}
        for violation in await self._confirmed(suspects):
            yield violation

    async def repair(self, fault: Violation) -> None:
        """Make the group follow the source data."""
        match = CATALOGUE.match(fault.key)
        if match is not None:
            await self._recorder.recheck_group(*match.parts)

    async def _groups(self) -> AsyncIterator[list[GroupKey]]:
        for node in self._valkey.primaries():
            async for page in scan_pages(node, "SCAN", match=NOTIFICATION_ACTORS("*", "*"), type="zset"):
                matches = [CATALOGUE.match(key) for key in page]
                found = [match.parts for match in matches if match is not None and match.key is NOTIFICATION_ACTORS]
                yield [(name, id) for name, id in found]

    async def _confirmed(self, suspects: dict[GroupKey, Actors]) -> list[Violation]:
        """Return the groups that still differ from unchanged source data after its events. All wait together."""
        for _ in range(READS - 1):
            if not suspects:
                break
            await self._progress.wait()
            again = await self._wrong(list(suspects))
            suspects = {group: wrong for group, actors in again.items() if (wrong := actors & suspects[group])}
        family = NOTIFICATION_ACTORS.pattern
        return [Violation(family, "source", NOTIFICATION_ACTORS(name, id), id, _SAYS, _REPAIR) for name, id in suspects]

    async def _wrong(self, groups: Sequence[GroupKey]) -> dict[GroupKey, Actors]:
        """Return the groups with actors that differ from the source data, and those actors."""
        wrong: dict[GroupKey, Actors] = {}
        for batch in chunks(groups, BATCH):
            actors = await asyncio.gather(*(self._wrong_actors(*group) for group in batch))
            wrong |= {group: found for group, found in zip(batch, actors, strict=True) if found}
        return wrong

    async def _wrong_actors(self, name: str, id: str) -> Actors:
        """Return actors with the stored and the real time, where they differ.

        A group whose subject cannot be seen is not wrong: it is not shown, and removed when its owner reads the list.
        One whose source data has a key of the wrong type cannot be compared until that key, a finding, is repaired.
        """
        try:
            return await self._compared_actors(name, id)
        except ReplyError as error:
            if not is_wrong_type(error):
                raise
            return set()
        except WrongKeyType:
            return set()

    async def _compared_actors(self, name: str, id: str) -> Actors:
        group = group_of(name, id)
        source = self._recorder.source_of(group.subject)
        rows = await self._valkey.call("ZRANGE", NOTIFICATION_ACTORS(name, id), 0, -1, "WITHSCORES")
        if source is None or not rows:
            return set()
        stored = [Activity(group, actor, parse_int(at)) for actor, at in rows]
        times = await source.times(stored)
        wrong = {(each.actor, each.at_ms, at) for each, at in zip(stored, times, strict=True) if at != each.at_ms}
        if wrong:
            (subject,) = await source.describe(name, [(group.type, group.subject)])
            return set() if isinstance(subject, Absence) else wrong
        return wrong


_SAYS: Final = "has actors who did not do it, or at another time"
_REPAIR: Final = "read the source data again"
