"""Records activities: consumes the events of the other domains, and makes groups follow the source data.

An event only says where to look. What is recorded is what the source data says when the event is handled, so events
that come twice, late or not at all leave no wrong actors behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from plaza.core.events import Event
from plaza.core.functions import Functions
from plaza.core.notification_source import (
    EVERYONE_TOLD,
    Activity,
    GroupName,
    NotificationSource,
    Recipients,
    subject_kind,
)
from plaza.core.sequences import chunks
from plaza.notifications.keys import NOTIFICATION_ACTORS, NOTIFICATIONS
from plaza.notifications.recipient_index import RecipientIndex, group_of

# Groups written at once. Each takes Valkey about 50 µs, and the requests of this process wait for all of them.
BATCH: Final = 8

# Hidden users that a group with too many actors does not count.
MAX_HIDDEN: Final = 1_000

# Reads of activities that keep changing. Their next events follow anyway.
MAX_READS: Final = 5

IMPORT: Final = "import"
RENAMED: Final = "user.renamed"


class Recorder:
    """Writes activities of all sources to the groups of their recipients."""

    def __init__(
        self, functions: Functions, sources: Sequence[NotificationSource], recipients: Recipients | None
    ) -> None:
        self.sources = sources
        self._functions = functions
        self._by_kind: Mapping[str, NotificationSource] = {kind: each for each in sources for kind in each.kinds}
        self._recipients = recipients
        self._index = RecipientIndex(functions.valkey)

    def keys(self, username: str) -> list[str]:
        """Return the keys that the commands and queries take."""
        own = [] if self._recipients is None else self._recipients.recipient_keys(username)
        return [NOTIFICATIONS(username), *own]

    def source_of(self, subject: str) -> NotificationSource | None:
        """Return the source that answers for a subject; None if its domain does not run."""
        return self._by_kind.get(subject_kind(subject))

    async def handle_batch(self, source: NotificationSource, events: Sequence[Event]) -> None:
        """Record what events say: each group is written once, however many events are about it."""
        told = [event for event in events if event.origin != IMPORT]
        await self._end(await source.ended(events))
        await self.refresh(source, await source.activities(told))
        for name in source.rechecked(told):
            await self.recheck(name, source)
        for event in told:
            if event.type == RENAMED:
                await self._rename(event.data["old"], event.data["new"])

    async def refresh(self, source: NotificationSource, activities: Iterable[Activity]) -> int:
        """Make groups follow the source data. Returns how many activities changed a group.

        What changed is read again after it was written. So if two refresh the same activity, the later one notices
        that it has written an old state, and the group ends with the current one.
        """
        known = await self._of_everyone_told(activities)
        pending = [one for one in _unique(known) if one.actor != one.group.recipient]
        changed = 0
        written: Mapping[GroupName, object] = {}
        for attempt in range(MAX_READS):
            times = await source.times(pending) if pending else []
            found = _by_group(pending, times)
            groups = {group: rows for group, rows in found.items() if rows != written.get(group)}
            if not groups:
                break
            written = groups
            counts = [
                count
                for batch in chunks(groups.items(), BATCH)
                for count in await self._record(source, {group: list(rows.values()) for group, rows in batch})
            ]
            changed += sum(counts) if attempt == 0 else 0
            again = {group for group, count in zip(groups, counts, strict=True) if count}
            pending = [activity for activity in pending if activity.group in again]
        return changed

    async def _rename(self, old: str, new: str) -> None:
        """Follow a user to a new name: as an actor in the groups of others, and as a recipient."""
        for source in self.sources:
            found = await source.activities_by(new)
            former = [replace(one, actor=old, ref="", renamed=True) for one in found]
            await self.refresh(source, [*former, *(replace(one, renamed=True) for one in found)])
            for groups in await self._index.find(await source.roots_of(new)):
                for group in groups:
                    await self._run("record", group, new)
        await self.recheck(new)

    async def recheck(self, username: str, source: NotificationSource | None = None) -> int:
        """Compare all groups of a user (of a source) with the source data. Returns how many actors were wrong."""
        wrong = 0
        for id in await self._functions.valkey.call("ZRANGE", NOTIFICATIONS(username), 0, -1):
            if source in (None, self.source_of(group_of(username, id).subject)):
                wrong += await self.recheck_group(username, id)
        return wrong

    async def recheck_group(self, username: str, id: str) -> int:
        """Compare a group with the source data. Returns how many actors were wrong. A renamed one keeps the place."""
        group = group_of(username, id)
        source = self.source_of(group.subject)
        rows = await self._functions.valkey.call("ZRANGE", NOTIFICATION_ACTORS(username, id), 0, -1, "WITHSCORES")
        if source is None or not rows:
            return 0
        names = {} if self._recipients is None else await self._recipients.current_names([row[0] for row in rows])
        found = [Activity(group, actor, int(at), renamed=True) for actor, at in rows]
        found += [replace(one, actor=names[one.actor]) for one in found if names.get(one.actor, one.actor) != one.actor]
        return await self.refresh(source, found)

    async def drop(self, groups: Iterable[GroupName]) -> None:
        """Remove the groups of subjects that cannot be seen any more."""
        for batch in chunks(dict.fromkeys(groups), BATCH):
            await asyncio.gather(*(self._run("drop", group) for group in batch))

    async def _end(self, groups: Sequence[GroupName]) -> None:
        """Remove groups, also those of everyone who was told."""
        named = [group for group in groups if group.recipient != EVERYONE_TOLD]
        subjects = [group.subject for group in groups if group.recipient == EVERYONE_TOLD]
        told = [group for found in await self._index.find(subjects) for group in found]
        await self.drop([*named, *told])
        await self._index.update(dict.fromkeys(told, False))

    async def _of_everyone_told(self, activities: Iterable[Activity]) -> list[Activity]:
        """Return activities, with those of everyone who was told once for each of these users."""
        found = list(activities)
        told = [one for one in found if one.group.recipient == EVERYONE_TOLD]
        for one, groups in zip(told, await self._index.find([one.group.subject for one in told]), strict=True):
            found += [replace(one, group=group) for group in groups if group.type == one.group.type]
        return [one for one in found if one.group.recipient != EVERYONE_TOLD]

    async def _record(
        self, source: NotificationSource, groups: Mapping[GroupName, Sequence[tuple[Activity, int | None]]]
    ) -> list[int]:
        """Write groups. Returns how many actors of each changed. One round trip on one server."""
        calls = []
        for group, rows in groups.items():
            owner = next((activity.owner for activity, _ in rows if activity.owner), "")
            calls.append(self._call(group, owner, *(word for activity, at in rows for word in _words(activity, at))))
        replies = await self._functions.run_each("notifications_record", calls)
        for group, (_, _, *overflowing) in zip(groups, replies, strict=True):
            for number, since, until in chunks(overflowing, 3):
                await self._fill(source, group, number, int(since), int(until) if until else None)
        await self._index.update({group: bool(reply[1]) for group, reply in zip(groups, replies, strict=True)})
        return [int(reply[0]) for reply in replies]

    async def _fill(
        self, source: NotificationSource, group: GroupName, number: str, since_ms: int, until_ms: int | None
    ) -> None:
        """Replace the actors of a group that has too many by the latest, and count the others that are not hidden."""
        hiding = self.keys(group.recipient)[2:]
        lists = await self._functions.valkey.batch([("ZRANGE", key, 0, MAX_HIDDEN - 1) for key in hiding])
        uncounted = {group.recipient, *(name for names in lists for name in names)}
        latest = await source.latest(group, since_ms, until_ms, uncounted)
        if latest is not None:
            rows = [word for row in latest.actors if row[0] != group.recipient for word in row]
            await self._run("fill", group, number, latest.total, *rows)

    async def _run(self, command: str, group: GroupName, *args: str | int) -> Any:
        keys, words = self._call(group, *args)
        return await self._functions.run(f"notifications_{command}", keys, *words)

    def _call(self, group: GroupName, *args: str | int) -> tuple[list[str], list[str | int]]:
        """Return the keys and arguments of a command about a group."""
        return self.keys(group.recipient), [group.recipient, f"{group.type}:{group.subject}", *args]


def _unique(activities: Iterable[Activity]) -> list[Activity]:
    """Return each activity once, the latest."""
    return list({(one.group, one.actor, one.ref): one for one in activities}.values())


def _by_group(
    activities: Sequence[Activity], times: Sequence[int | None]
) -> dict[GroupName, dict[str, tuple[Activity, int | None]]]:
    """Return each actor of each group, with the latest time."""
    groups: dict[GroupName, dict[str, tuple[Activity, int | None]]] = {}
    for activity, at in zip(activities, times, strict=True):
        rows = groups.setdefault(activity.group, {})
        known = rows.get(activity.actor)
        if known is None or (at is not None and (known[1] is None or at > known[1])):
            rows[activity.actor] = (activity, at)
    return groups


def _words(activity: Activity, at: int | None) -> tuple[str, str | int, str]:
    return activity.actor, "" if at is None else at, "1" if activity.renamed else ""
