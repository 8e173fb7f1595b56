"""What challenges hold about a person: all of it on request, and none of it when they leave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Table, and_, delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from plaza.challenges.keys import CLG_SHOWN
from plaza.challenges.model import date_of, shown_of
from plaza.challenges.projection import BATCH, Derived
from plaza.challenges.queries import note
from plaza.challenges.tables import ARRIVAL, CHALLENGE, MEMBER, POST, REACTION, REMOVAL, TRACKING
from plaza.core.username_locks import wait_for_username_locks

# What a person has rows in, and what makes two of them the same row.
RENAMED = (
    ("mmbr", MEMBER, ("challenge_id",)),
    ("post", POST, ()),
    ("reaction", REACTION, ("post_id",)),
    ("tracking", TRACKING, ("challenge_id", "day")),
)


class Participants:
    """People, as challenges know them."""

    def __init__(self, derived: Derived) -> None:
        self._derived = derived
        self._sql = derived.sql

    async def export(self, username: str) -> dict[str, Any]:
        """Everything held about a person."""
        shown = await self._derived.valkey.call("HGETALL", CLG_SHOWN(username))
        async with self._sql.read() as tx:

            async def rows(table: Table, *columns: str) -> list[dict[str, Any]]:
                name = table.c.creator if table is CHALLENGE else table.c.username
                picked = select(*(table.c[column] for column in columns)).where(name == username).order_by(table.c.id)
                return [dict(row) for row in (await tx.execute(picked)).mappings()]

            tracked = await rows(TRACKING, "challenge_id", "day")
            joined = await rows(MEMBER, "challenge_id", "joined_day")
            return {
                "challenges": await rows(CHALLENGE, "id", "title", "category", "is_public", "duration", "created_ms"),
                "memberships": [{"challenge_id": r["challenge_id"], "since": date_of(r["joined_day"])} for r in joined],
                "posts": await rows(POST, "id", "challenge_id", "text", "is_break", "created_ms"),
                "reactions": await rows(REACTION, "post_id", "challenge_id", "created_ms"),
                "tracked": [{"challenge_id": r["challenge_id"], "date": date_of(r["day"])} for r in tracked],
                "recommended": [
                    {"post_id": int(post), "days": days, "last": date_of(last)}
                    for post, (days, last) in sorted((post, shown_of(text)) for post, text in shown.items())
                ],
            }

    async def delete(self, username: str) -> None:
        """Remove a person's rows in batches, and what follows from them. Challenges stay, without their creator's name:
        others take part in them. Stopped half-way, it goes on where it was."""
        await wait_for_username_locks(self._sql, username)
        while await self._forget_posts(username):
            pass
        for name, table in (("reaction", REACTION), ("tracking", TRACKING), ("mmbr", MEMBER)):
            while await self._forget_rows(username, name, table):
                pass
        async with self._sql.begin() as tx:
            await tx.execute(update(CHALLENGE).where(CHALLENGE.c.creator == username).values(creator=""))
        await self._derived.people([username])
        await self._derived.contributions([username], "exact")
        await self._derived.valkey.call("DEL", CLG_SHOWN(username))
        async with self._sql.begin() as tx:  # the daily job needs their number, and no longer whose they were
            for notes in (REMOVAL, ARRIVAL):
                await tx.execute(update(notes).where(notes.c.username == username).values(username=""))

    async def rename(self, old: str, new: str) -> None:
        """Give a person's rows to another name, in batches, and what follows from them. A row that both names have is
        one. Stopped half-way, it goes on where it was."""
        await wait_for_username_locks(self._sql, old)
        for name, table, once in RENAMED:
            while await self._rename_rows(old, new, name, table, once):
                pass
        async with self._sql.begin() as tx:
            await tx.execute(update(CHALLENGE).where(CHALLENGE.c.creator == old).values(creator=new))
            for notes in (REMOVAL, ARRIVAL):
                await tx.execute(update(notes).where(notes.c.username == old).values(username=new))
        await self._derived.people([old, new])
        await self._derived.contributions([old, new], "exact")
        await self._rename_shown(old, new)

    async def _rename_rows(self, old: str, new: str, name: str, table: Table, once: Sequence[str]) -> bool:
        async with self._sql.begin() as tx:
            some = select(table.c.id).where(table.c.username == old).order_by(table.c.id).limit(BATCH)
            ids = (await tx.execute(some)).scalars().all()
            if once:
                theirs = table.alias()
                same = [theirs.c[column] == table.c[column] for column in once]
                both = select(theirs.c.id).where(theirs.c.username == new, *same).exists()
                await _remove(tx, name, table, and_(table.c.id.in_(ids), both))
            await tx.execute(update(table).where(table.c.id.in_(ids), table.c.username == old).values(username=new))
        return bool(ids)

    async def _rename_shown(self, old: str, new: str) -> None:
        valkey, shown = self._derived.valkey, CLG_SHOWN(old)
        posts, left = await valkey.batch([("HGETALL", shown), ("PTTL", shown)])
        if posts:
            await valkey.call("HSET", CLG_SHOWN(new), *(part for entry in posts.items() for part in entry))
            await valkey.call("PEXPIRE", CLG_SHOWN(new), left)
            await valkey.call("DEL", shown)

    async def _forget_posts(self, username: str) -> bool:
        """Some posts, with everybody's reactions to them."""
        async with self._sql.begin() as tx:
            mine = select(POST).where(POST.c.username == username).order_by(POST.c.id).limit(BATCH)
            posts = (await tx.execute(mine)).all()
            ids = [row.id for row in posts]
            reactions = await _remove(tx, "reaction", REACTION, REACTION.c.post_id.in_(ids))
            await _remove(tx, "post", POST, POST.c.id.in_(ids))
        await self._derived.posts(ids)
        await self._derived.reactions([(row.username, row.post_id, row.challenge_id) for row in reactions])
        return bool(posts)

    async def _forget_rows(self, username: str, name: str, table: Table) -> bool:
        async with self._sql.begin() as tx:
            some = select(table.c.id).where(table.c.username == username).order_by(table.c.id).limit(BATCH)
            ids = (await tx.execute(some)).scalars().all()
            await _remove(tx, name, table, table.c.id.in_(ids))
        return bool(ids)


async def _remove(tx: AsyncConnection, name: str, table: Table, which: Any) -> list[Any]:
    """Delete rows, and tell the daily job of each."""
    gone = list((await tx.execute(delete(table).where(which).returning(table))).all())
    await note(tx, REMOVAL, name, gone)
    return gone
