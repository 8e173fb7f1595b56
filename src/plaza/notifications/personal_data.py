"""Exports, deletes and renames a user's notifications.

A user in the groups of others follows from what the user did, which has events, also those of a renaming or deletion.
"""

from __future__ import annotations

from typing import Any, Final

from plaza.core.notification_source import GroupName
from plaza.core.valkey import Valkey
from plaza.notifications.keys import (
    NOTIFICATION_ACTORS,
    NOTIFICATION_GROUPS,
    NOTIFICATION_PREFERENCES,
    NOTIFICATIONS,
    NOTIFICATIONS_DISMISSED,
    NOTIFICATIONS_UNREAD,
)
from plaza.notifications.model import turned_off
from plaza.notifications.recipient_index import RecipientIndex, group_of

# All keys with a username in their name.
PERSONAL_KEYS: Final = (
    NOTIFICATION_ACTORS,
    NOTIFICATION_GROUPS,
    NOTIFICATION_PREFERENCES,
    NOTIFICATIONS,
    NOTIFICATIONS_DISMISSED,
    NOTIFICATIONS_UNREAD,
)


class NotificationsPersonalData:
    """A user's notifications and preferences."""

    def __init__(self, valkey: Valkey) -> None:
        self._valkey = valkey
        self._index = RecipientIndex(valkey)

    async def export(self, username: str) -> dict[str, Any]:
        """Return a user's notifications with their latest actors, and the types that are turned off."""
        rows, unread, preferences = await self._valkey.batch(
            [
                ("ZRANGE", NOTIFICATIONS(username), 0, -1, "REV", "WITHSCORES"),
                ("ZRANGE", NOTIFICATIONS_UNREAD(username), 0, -1),
                ("HGETALL", NOTIFICATION_PREFERENCES(username)),
            ]
        )
        latest = [("ZRANGE", NOTIFICATION_ACTORS(username, id), 0, 2, "REV") for id, _ in rows]
        actors = await self._valkey.batch(latest)
        return {
            "notifications": [
                {"id": id, "updated_at": int(at), "read": id not in unread, "actors": names}
                for (id, at), names in zip(rows, actors, strict=True)
            ],
            "turned_off": turned_off(preferences),
        }

    async def delete(self, username: str) -> None:
        """Delete a user's notifications and preferences. Repeatable."""
        await self._index.update(dict.fromkeys(await self._groups(username), False))
        ids = await self._valkey.call("ZRANGE", NOTIFICATIONS(username), 0, -1)
        if ids:
            await self._valkey.call("UNLINK", *(NOTIFICATION_ACTORS(username, id) for id in ids))
        await self._valkey.call("UNLINK", *(key(username) for key in _OWN_KEYS))

    async def rename(self, old: str, new: str) -> None:
        """Move a user's notifications to a new name. Repeatable."""
        for id in await self._valkey.call("ZRANGE", NOTIFICATIONS(old), 0, -1):
            await self._copy_sorted_set(NOTIFICATION_ACTORS(old, id), NOTIFICATION_ACTORS(new, id))
        for key in (NOTIFICATION_GROUPS, NOTIFICATION_PREFERENCES):
            fields = await self._valkey.call("HGETALL", key(old))
            if fields:
                await self._valkey.call("HSET", key(new), *(word for pair in fields.items() for word in pair))
        for key in (NOTIFICATIONS, NOTIFICATIONS_UNREAD, NOTIFICATIONS_DISMISSED):
            await self._copy_sorted_set(key(old), key(new))
        await self._index.update(dict.fromkeys(await self._groups(new), True))
        await self.delete(old)

    async def _groups(self, username: str) -> list[GroupName]:
        """Return the groups that the index may name, also those that were dismissed."""
        shown, dismissed = await self._valkey.batch(
            [("HKEYS", NOTIFICATION_GROUPS(username)), ("ZRANGE", NOTIFICATIONS_DISMISSED(username), 0, -1)]
        )
        return [group_of(username, f"{about}:") for about in {*shown, *dismissed}]

    async def _copy_sorted_set(self, source: str, target: str) -> None:
        rows = await self._valkey.call("ZRANGE", source, 0, -1, "WITHSCORES")
        if rows:
            await self._valkey.call("ZADD", target, *(word for member, score in rows for word in (repr(score), member)))


_OWN_KEYS = (
    NOTIFICATION_GROUPS,
    NOTIFICATIONS_DISMISSED,
    NOTIFICATION_PREFERENCES,
    NOTIFICATIONS_UNREAD,
    NOTIFICATIONS,
)
