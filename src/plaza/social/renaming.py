"""Renaming: a person's every trace goes to another name, in steps that can be taken up again.

    1  the old name is marked, the new one reserved; the old name's tokens are void
    2  the profile stands under the new name too
    3  every other domain moves what it holds; social moves its own, thing by thing, until nothing is left
    4  the new name gets the password: its owner may sign in
    5  the old profile and the marks go

The same relation is there under both names for a moment (counters follow, since they are cardinalities), never under
none, so a run that dies anywhere is followed by one that goes on; the mark beside the old name says with what. What was
on its way to the old name when it was marked is still let in, and moved by the next pass. One renaming runs at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from plaza.core.auth import Auth
from plaza.core.clock import Clock
from plaza.core.domain import PersonalData
from plaza.core.errors import Conflict, Invalid, NotFound
from plaza.core.functions import Functions
from plaza.core.keyspace import Key
from plaza.core.leases import Leases
from plaza.core.tokens import is_username
from plaza.social import keys as k
from plaza.social.home_fanout import Fanout
from plaza.social.lua_replies import as_dict

# Things moved at once.
BATCH = 100
# Keys looked through at once for an admin's signature.
SCANNED = 1_000
# How long a command waits for another renaming to end.
WAIT_SECONDS = 30

Move = Callable[[str, int], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Names:
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Tie:
    """How one person stands to another; the first one's keys hold it. The verb to tie it, and the one to undo it."""

    verb: str
    keys: tuple[Key, ...]
    undo: str
    undo_keys: tuple[Key, ...]


_FOLLOWING = (k.USER, k.USER_FOLLOWING, k.USER_FOLLOWING_RECENT)
_HIDDEN = (k.USER_BLOCKED, k.USER_BLOCKED_BY)
FOLLOW = Tie("social_follow", (*_FOLLOWING, *_HIDDEN, k.TMP_HOME_STATE), "social_unfollow", _FOLLOWING)
MUTE = Tie("social_mute", (k.USER_MUTED, *_HIDDEN), "social_unmute", (k.USER_MUTED,))
BLOCK = Tie("social_block", (k.USER_BLOCKED, *_FOLLOWING), "social_unblock", (k.USER_BLOCKED,))

# In the order in which they are moved: followers before posts, so that a feed that is built meanwhile has them; mutes
# before blocks, which would forbid them.
LISTS = (
    k.USER_FOLLOWERS_RECENT,
    k.USER_POSTS,
    k.USER_COMMENTS,
    k.USER_LIKED,
    k.USER_BOOKMARKED,
    k.USER_FOLLOWING_RECENT,
    k.USER_MUTED,
    k.USER_MUTED_BY,
    k.USER_BLOCKED,
    k.USER_BLOCKED_BY,
)


class StillThere(Conflict):
    title, code = "Something of the old name could not be moved", "still_there"


class Renaming:
    def __init__(
        self,
        functions: Functions,
        fanout: Fanout,
        auth: Auth,
        clock: Clock,
        personal_data: Mapping[str, PersonalData],
    ) -> None:
        self.functions = functions
        self.valkey = functions.valkey
        self.fanout = fanout
        self.auth = auth
        self.clock = clock
        self.leases = Leases(functions)
        self._personal_data = personal_data  # of the other domains, by name

    async def rename(self, old: str, new: str) -> int:
        """Give a person another name, everywhere. Returns how many things of theirs social has moved.

        Called again with the same names after it was broken off, it goes on; so does a worker.
        """
        for name, field in ((old, "old"), (new, "new")):
            if not is_username(name):
                raise Invalid("must be 1 to 30 of A-Z a-z 0-9 . _ - and not me or AUTH", field=field)
        if old == new:
            raise Invalid("must be another name", field="new")
        async with self.leases.hold("social.renaming", WAIT_SECONDS):
            return await self._run(Names(old, new))

    async def resume(self) -> int:
        """Go on with renamings whose process died."""
        under_way = await self.valkey.call("HGETALL", k.USERS_RENAMING())
        for old, new in under_way.items():
            with contextlib.suppress(Conflict, NotFound):  # the new name went to another before it could be reserved
                await self.rename(old, new)
        return len(under_way)

    async def _run(self, names: Names) -> int:
        phase = await self._begin(names)
        if phase != "closing":
            await self._freeze(names)
            await self._arrive(names)
        await self._settled(names.old)
        await self._sign_anew(names)
        moved, idle = 0, 0
        while idle < 2:  # once may be somebody's last word to the old name, come after the pass
            count = await self._move_all(names)
            await self._settle_in(names)
            if await self._end(names.old):
                return moved + count
            moved, idle = moved + count, 0 if count else idle + 1
        raise StillThere(f"Something is left of {names.old}. Run `plaza audit --repair`, then this again.")

    async def _begin(self, names: Names) -> str:
        old, new = names.old, names.new
        mine = [k.USER(old), k.USER_LEAVING(old), k.USER_RENAMING(old)]
        phase: str = await self.functions.run("social_rename_begin", mine, old, new, self.clock.now_ms())
        if phase == "begun":
            theirs = [k.USER(new), k.AUTH_USER(new), k.USER_LEAVING(new), k.USER_RENAMING(new)]
            try:
                await self.functions.run("social_rename_reserve", theirs, old)
            except Conflict:
                await self.functions.run("social_rename_cancel", [k.USER_RENAMING(old)], old)
                raise
        return phase

    async def _freeze(self, names: Names) -> None:
        keys = [k.AUTH_USER(names.old), k.USER_RENAMING(names.old)]
        await self.functions.run("social_rename_freeze", keys, names.old, self.auth.stamp(names.old))
        await self.auth.cut_off(names.old)

    async def _arrive(self, names: Names) -> None:
        profile = await self.valkey.call("HGETALL", k.USER(names.old))
        await self.functions.run("social_rename_arrive", _place(names.new), names.new, *_fields(profile))

    async def _settled(self, old: str) -> None:
        """Wait for what the old name had begun: a late effect would speak of it again."""
        await self.functions.outbox.wait_until_settled(old)
        await self.fanout.drop()  # posts it has deleted, which its followers' feeds may still have

    async def _settle_in(self, names: Names) -> None:
        keys = [k.USER_RENAMING(names.old), k.USER(names.old), k.AUTH_USER(names.old)]
        profile, credentials = map(as_dict, await self.functions.run("social_rename_close", keys))
        kept = [part for field in ("password_hash", "synced_hash") if field in credentials
                for part in (field, credentials[field])]  # fmt: skip
        await self.functions.run(
            "social_rename_settle_in",
            [*_place(names.new), k.AUTH_USER(names.new)],
            names.new, len(kept) // 2, *kept, *_fields(profile),
        )  # fmt: skip

    async def _end(self, old: str) -> bool:
        first = [k.USER(old), k.AUTH_USER(old), k.USER_RENAMING(old), k.TMP_HOME(old), k.TMP_HOME_STATE(old)]
        rest = [key(old) for key in (*LISTS, k.USER_FOLLOWERS, k.USER_FOLLOWING, k.USER_POINTS)]
        return bool(await self.functions.run("social_rename_end", [*first, *rest], old))

    async def _move_all(self, names: Names) -> int:
        """One pass over everything that names the old name."""
        for holder in self._personal_data.values():
            await holder.rename(names.old, names.new)
        moves = self._moves(names)
        return sum([await self._empty(key(names.old), move) for key, move in zip(LISTS, moves, strict=True)])

    def _moves(self, names: Names) -> list[Move]:
        """How an entry of each of the lists is moved, given when it was made."""
        old, new = names.old, names.new
        return [
            lambda who, at: self._retie(FOLLOW, (who, old), (who, new), at),
            lambda id, at: self.functions.run("social_rename_post", [k.POST(id)], id, old, new),
            lambda id, at: self.functions.run("social_rename_comment", [k.COMMENT(id)], id, old, new),
            lambda id, at: self._move_like(names, id),
            lambda id, at: self._move_bookmark(names, id, at),
            lambda who, at: self._retie(FOLLOW, (old, who), (new, who), at),
            lambda who, at: self._retie(MUTE, (old, who), (new, who), at),
            lambda who, at: self._retie(MUTE, (who, old), (who, new), at),
            lambda who, at: self._retie(BLOCK, (old, who), (new, who), at),
            lambda who, at: self._retie(BLOCK, (who, old), (who, new), at),
        ]

    async def _empty(self, key: str, move: Move) -> int:
        """Move what a list names until it is empty."""
        moved = 0
        while rows := await self.valkey.call("ZRANGE", key, 0, BATCH - 1, "WITHSCORES"):
            await asyncio.gather(*(move(member, int(at)) for member, at in rows))
            # What could not be moved because its other side is long gone.
            await self.valkey.call("ZREM", key, *(member for member, _ in rows))
            moved += len(rows)
        return moved

    async def _retie(self, tie: Tie, before: tuple[str, str], after: tuple[str, str], at: int) -> None:
        """The same tie from or to the new name, as old as it was; then the old one ends."""
        if after[0] != after[1]:
            with contextlib.suppress(NotFound):  # the other is leaving
                await self.functions.run(tie.verb, [key(after[0]) for key in tie.keys], *after, at)
        await self.functions.run(tie.undo, [key(before[0]) for key in tie.undo_keys], *before)

    async def _move_like(self, names: Names, id: str) -> None:
        keys = [k.POST(id), k.POST_LIKES(id), k.POST_LIKES_RECENT(id)]
        await self.functions.run("social_rename_like", keys, id, names.old, names.new, self.clock.now_ms())

    async def _move_bookmark(self, names: Names, id: str, at: int) -> None:
        now = self.clock.now_ms()
        await self.functions.run("social_rename_bookmark", [k.USER_BOOKMARKED(names.new)], names.new, id, now, at)
        await self.functions.run("social_unbookmark", [k.USER_BOOKMARKED(names.old)], names.old, id, now)

    async def _sign_anew(self, names: Names) -> None:
        """What an admin has banned or suspended names them too. No list leads there: everything is looked through."""
        for key, field in ((k.POST, "banned_by"), (k.USER, "suspended_by")):
            async for some in self._all(key("*")):
                signed = await self.valkey.batch([("HGET", name, field) for name in some])
                for name in (name for name, by in zip(some, signed, strict=True) if by == names.old):
                    await self.functions.run("social_rename_signature", [name], field, names.old, names.new)

    async def _all(self, pattern: str) -> AsyncIterator[list[str]]:
        for node in self.valkey.primaries():
            cursor = "0"
            while True:
                cursor, found = await node.call("SCAN", cursor, "MATCH", pattern, "COUNT", SCANNED, "TYPE", "hash")
                # The pattern's star takes further parts as well, and those are other keys.
                if some := [name for name in found if name.count(":") == pattern.count(":")]:
                    yield some
                if cursor in ("0", 0):
                    break


def _place(name: str) -> list[str]:
    """Where a profile arrives."""
    return [key(name) for key in (k.USER, k.USER_RENAMING, k.USER_POSTS, k.USER_FOLLOWERS, k.USER_FOLLOWING)]


def _fields(profile: Mapping[str, str]) -> list[str]:
    return [part for field in profile.items() for part in field]
