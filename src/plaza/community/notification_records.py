"""Notification preferences as records. Notifications themselves are derived: `plaza notifications rebuild`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from plaza.community.records import CommunityPart, Record
from plaza.community.social_records import apply_one
from plaza.core.errors import NotFound
from plaza.core.valkey import Valkey, scan_pages
from plaza.notifications import keys as k
from plaza.social.inbound_sync import Status, SyncResult
from plaza.social.keys import USER
from plaza.social.model import Username

_KIND: Final = "notification_preference"
_SINCE: Final = "^(off:[0-9]{1,16}|[0-9]{1,16}-[0-9]{1,16})$"


class _PreferenceRecord(msgspec.Struct, forbid_unknown_fields=True):
    username: Username
    notification: Annotated[str, Meta(pattern=f"^({'|'.join(k.NOTIFICATION_TYPES)})$")]
    value: Annotated[str, Meta(pattern=_SINCE)]


class NotificationPart(CommunityPart):
    """The types of notifications that users have turned off, or had turned off before."""

    kinds: Sequence[str] = (_KIND,)

    def __init__(self, valkey: Valkey) -> None:
        self._valkey = valkey

    async def apply(self, kind: str, records: Sequence[Any]) -> list[SyncResult]:
        """Set preferences one after the other."""
        return [await apply_one(index, record, _PreferenceRecord, self._set) for index, record in enumerate(records)]

    async def _set(self, record: _PreferenceRecord) -> Status:
        key = k.NOTIFICATION_PREFERENCES(record.username)
        exists, known = await self._valkey.batch(
            [("EXISTS", USER(record.username)), ("HGET", key, record.notification)]
        )
        if not exists:
            raise NotFound("No user has this name.", username=record.username)
        if known == record.value:
            return "unchanged"
        await self._valkey.call("HSET", key, record.notification, record.value)
        return "created" if known is None else "updated"

    async def export(self, kind: str) -> AsyncIterator[Record]:
        """Yield all preferences by username and type."""
        names: set[str] = set()
        for node in self._valkey.primaries():
            async for page in scan_pages(node, "SCAN", match=k.NOTIFICATION_PREFERENCES("*"), type="hash"):
                matches = [k.CATALOGUE.match(key) for key in page]
                names |= {m.parts[0] for m in matches if m is not None and m.key is k.NOTIFICATION_PREFERENCES}
        for name in sorted(names):
            stored = await self._valkey.call("HGETALL", k.NOTIFICATION_PREFERENCES(name))
            for type, value in sorted(stored.items()):
                yield {"username": name, "notification": type, "value": value}
