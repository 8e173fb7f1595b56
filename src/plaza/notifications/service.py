"""A user's notifications: list, mark as read, dismiss, choose types."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from plaza.core.auth import Actor
from plaza.core.errors import Invalid
from plaza.core.functions import Functions
from plaza.core.notification_source import NOTIFICATION_TYPES, Absence, GroupName, NotificationSubject
from plaza.core.paging import PageResult, Position, list_checksum, page_by_position
from plaza.notifications.keys import NOTIFICATION_PREFERENCES
from plaza.notifications.model import (
    NoNotification,
    Notification,
    NotificationsPage,
    NotificationsQuery,
    Preferences,
    PreferencesChange,
    ReadRequest,
    ReadResult,
    UnreadCount,
    turned_off,
)
from plaza.notifications.recipient_index import group_of
from plaza.notifications.recorder import Recorder


class Notifications:
    """What a user does with notifications."""

    def __init__(self, functions: Functions, recorder: Recorder) -> None:
        self._functions = functions
        self._recorder = recorder

    async def page(self, actor: Actor, query: NotificationsQuery) -> NotificationsPage:
        """List notifications, latest first. Two round trips, one if there are none, four if subjects were deleted."""
        name = f"notifications {actor.name} {query.filter}"
        list_id, unread, rows = list_checksum(name), 0, dict[str, list[Any]]()
        gone: list[GroupName] = []

        async def after(start: Position | None, count: int) -> list[tuple[str, Position]]:
            nonlocal unread
            position = ("", "") if start is None else (repr(start.score), start.id)
            args = (actor.name, query.filter, count, *position)
            reply = await self._functions.query("notifications_page", self._recorder.keys(actor.name), *args)
            unread = reply[0]
            rows.update({row[0]: row for row in reply[1:]})
            return [(row[0], Position(list_id, float(row[1]), row[0])) for row in reply[1:]]

        async def load(ids: Sequence[str]) -> list[Notification | None]:
            return await self._load(actor.name, [rows[id] for id in ids], gone)

        found: PageResult[Notification] = await page_by_position(name, query, after, load)
        if gone:
            await self._recorder.drop(gone)
            unread = (await self.unread(actor)).unread
        return NotificationsPage(found.items, found.pagination, unread)

    async def unread(self, actor: Actor) -> UnreadCount:
        """Return how many notifications are unread. One round trip."""
        keys = self._recorder.keys(actor.name)
        return UnreadCount(await self._functions.query("notifications_unread", keys, actor.name))

    async def mark_read(self, actor: Actor, request: ReadRequest) -> ReadResult:
        """Mark notifications as read. One round trip."""
        if (request.ids is UNSET) == (request.before is UNSET):
            raise Invalid("Send `ids` or `before`, one of them.", field="ids")
        ids = [] if request.ids is UNSET else request.ids
        before = "" if request.before is UNSET else request.before
        keys = self._recorder.keys(actor.name)
        read, unread = await self._functions.run("notifications_read", keys, actor.name, before, *ids)
        return ReadResult(read, unread)

    async def dismiss(self, actor: Actor, id: str) -> None:
        """Remove a notification. What it told is not told again. One round trip."""
        keys = self._recorder.keys(actor.name)
        if not await self._functions.run("notifications_dismiss", keys, actor.name, id):
            raise NoNotification("You have no notification with this id.", id=id)

    async def preferences(self, actor: Actor) -> Preferences:
        """Return which types a user gets. One round trip."""
        stored = await self._functions.valkey.call("HGETALL", NOTIFICATION_PREFERENCES(actor.name))
        off = turned_off(stored)
        return Preferences(**{type: type not in off for type in NOTIFICATION_TYPES})

    async def set_preferences(self, actor: Actor, change: PreferencesChange) -> Preferences:
        """Turn types on or off; what was told already stays. Two round trips."""
        given = {type: on for type, on in msgspec.structs.asdict(change).items() if on is not UNSET}
        words = [word for type, on in given.items() for word in (type, "1" if on else "0")]
        if words:
            keys = self._recorder.keys(actor.name)
            await self._functions.run("notifications_prefer", keys, actor.name, *words)
        return await self.preferences(actor)

    async def _load(self, name: str, rows: Sequence[Sequence[Any]], gone: list[GroupName]) -> list[Notification | None]:
        """Return notifications as the recipient sees them. Those whose subjects were deleted go to `gone`."""
        groups = [group_of(name, row[0]) for row in rows]
        subjects = await self._describe(name, groups)
        gone += [group for group, subject in zip(groups, subjects, strict=True) if subject is Absence.GONE]
        return [
            None if isinstance(subject, Absence) or not row[3] else _notification(row, group, subject)
            for row, group, subject in zip(rows, groups, subjects, strict=True)
        ]

    async def _describe(self, name: str, groups: Sequence[GroupName]) -> list[NotificationSubject | Absence]:
        """Ask each source for its subjects, all at once. The groups of a domain that does not run are hidden."""
        wanted: dict[int, list[int]] = {}
        sources = [self._recorder.source_of(group.subject) for group in groups]
        for index, source in enumerate(sources):
            if source is not None:
                wanted.setdefault(id(source), []).append(index)
        found: list[NotificationSubject | Absence] = [Absence.HIDDEN] * len(groups)

        async def describe(indexes: Sequence[int]) -> None:
            source = sources[indexes[0]]
            assert source is not None
            pairs = [(groups[index].type, groups[index].subject) for index in indexes]
            for index, subject in zip(indexes, await source.describe(name, pairs), strict=True):
                found[index] = subject

        await asyncio.gather(*map(describe, wanted.values()))
        return found


def _notification(row: Sequence[Any], group: GroupName, subject: NotificationSubject) -> Notification:
    id, updated, is_read, count, latest = row
    happened = [actor[1:] for actor in latest if actor.startswith("@")]
    return Notification(
        id=id,
        type=group.type,
        subject=subject,
        actors=[actor for actor in latest if not actor.startswith("@")],
        count=count,
        updated_at=int(float(updated)),
        read=bool(is_read),
        action=happened[0] if happened else None,
    )
