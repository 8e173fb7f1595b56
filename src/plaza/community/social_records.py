"""Users and what they wrote as records: those of sync, and bans, blocks, mutes and suspensions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import msgspec

from plaza.community.records import CommunityPart, Record
from plaza.community.social_export import SocialExport
from plaza.core.errors import PlazaError, Unavailable
from plaza.core.http.problem_details import invalid_from_msgspec
from plaza.social import keys as k
from plaza.social.inbound_sync import InboundSync, Status, SyncResult
from plaza.social.model import Millis, PostId, Username
from plaza.social.relations import follow_keys


class _BanRecord(msgspec.Struct, forbid_unknown_fields=True):
    post_id: PostId
    banned_by: str
    created_at: Millis


class _RelationRecord(msgspec.Struct, forbid_unknown_fields=True):
    """A block or a mute."""

    username: Username
    target: Username
    created_at: Millis


class _SuspensionRecord(msgspec.Struct, forbid_unknown_fields=True):
    username: Username
    suspended_by: str
    created_at: Millis


class SocialPart(CommunityPart):
    """The records of social."""

    # Mutes first: a user who is blocked, or blocks, cannot be muted any more.
    kinds: Sequence[str] = (*InboundSync.kinds, "ban", "mute", "block", "suspension")

    def __init__(self, sync: InboundSync, export: SocialExport) -> None:
        self._sync = sync
        self._functions = sync.functions
        self._valkey = sync.valkey
        self._export = export
        self._handlers: dict[str, tuple[type, Callable[[Any], Awaitable[Status]]]] = {
            "ban": (_BanRecord, self._ban),
            "block": (_RelationRecord, self._block),
            "mute": (_RelationRecord, self._mute),
            "suspension": (_SuspensionRecord, self._suspend),
        }

    async def apply(self, kind: str, records: Sequence[Any]) -> list[SyncResult]:
        """Import records through sync, or one after the other."""
        if kind in self._sync.kinds:
            return await self._sync.apply(kind, records)
        shape, handler = self._handlers[kind]
        return [await apply_one(index, record, shape, handler) for index, record in enumerate(records)]

    async def _ban(self, record: _BanRecord) -> Status:
        name = k.POST(record.post_id)
        if await self._valkey.call("HEXISTS", name, "banned"):
            return "unchanged"
        args = record.post_id, record.banned_by, record.created_at, "import"
        await self._functions.run("social_ban_post", [name], *args)
        return "created"

    async def _block(self, record: _RelationRecord) -> Status:
        me, target = record.username, record.target
        keys = [k.USER_BLOCKED(me), *follow_keys(me)[:3], *self._target_keys(target)]
        return _status(await self._functions.run("social_block", keys, me, target, record.created_at))

    async def _mute(self, record: _RelationRecord) -> Status:
        me, target = record.username, record.target
        if await self._valkey.call("ZSCORE", k.USER_MUTED(me), target) is not None:
            return "unchanged"  # the command refuses a user who was blocked since
        keys = [k.USER_MUTED(me), k.USER_BLOCKED(me), k.USER_BLOCKED_BY(me), *self._target_keys(target)]
        return _status(await self._functions.run("social_mute", keys, me, target, record.created_at))

    def _target_keys(self, target: str) -> list[str]:
        return [] if self._valkey.clustered else [k.USER(target)]

    async def _suspend(self, record: _SuspensionRecord) -> Status:
        name = record.username
        if await self._valkey.call("HEXISTS", k.AUTH_USER(name), "suspended_at"):
            return "unchanged"
        args = name, record.suspended_by, record.created_at, "import"
        await self._functions.run("social_suspend", [k.USER(name), k.AUTH_USER(name)], *args)
        return "created"

    def export(self, kind: str) -> AsyncIterator[Record]:
        """Yield all records of a type: by username, then by time."""
        return self._export.records(kind)


async def apply_one(index: int, record: Any, shape: type, handler: Callable[[Any], Awaitable[Status]]) -> SyncResult:
    """Validate and import one record."""
    try:
        return SyncResult(index, await handler(msgspec.convert(record, shape)))
    except msgspec.ValidationError as error:
        invalid = invalid_from_msgspec(error)
        return SyncResult(index, "error", invalid.detail, invalid.code, invalid.extra.get("field"))
    except Unavailable:
        raise  # the record is fine
    except PlazaError as error:
        return SyncResult(index, "error", error.detail, error.code, error.extra.get("field"))


def _status(changed: int) -> Status:
    return "created" if changed else "unchanged"
