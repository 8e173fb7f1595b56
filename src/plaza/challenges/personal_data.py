"""Exports, deletes and renames what challenges store about a user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Table, and_, delete, select, update

from plaza.challenges import keys
from plaza.challenges.comments import delete_comments
from plaza.challenges.events import STREAM, ChallengeJoined, ChallengeLeft, ChallengeReacted
from plaza.challenges.keys import CLG_SHOWN
from plaza.challenges.model import from_thousandths, iso_date, parse_shown
from plaza.challenges.post_deletion import PostDeletion, delete_logged
from plaza.challenges.projection import ChallengeProjections
from plaza.challenges.readable_rows import BATCH
from plaza.challenges.tables import (
    CHALLENGE,
    COMMENT,
    DELETE_LOG,
    EDIT,
    INSERT_LOG,
    INVITATION,
    MEMBER,
    POST,
    REACTION,
    TRACKING,
)
from plaza.core.async_engine import AsyncConnection
from plaza.core.events import EventData
from plaza.core.sql_events import add_events
from plaza.core.username_locks import wait_for_username_locks

# Tables with a user's rows: abbreviation, table, and the columns that make two rows of a user duplicates.
USER_TABLES = (
    ("mmbr", MEMBER, ("challenge_id",)),
    ("post", POST, ()),
    ("reaction", REACTION, ("post_id",)),
    ("tracking", TRACKING, ("challenge_id", "day")),
    ("comment", COMMENT, ()),
)


# The columns of `member` that are exported as they are.
_REMINDER: Final = ("reminder_hour", "reminder_time_zone", "reminder_due_ms", "reminded_ms")

# All keys with a username in their name.
PERSONAL_KEYS: Final = (keys.LIKED_POSTS, keys.CLGS_PREFERENCE, keys.CLG_TICKETS, keys.CLG_SHOWN)


class ChallengesPersonalData:
    """A user's rows in SQL and what is derived from them."""

    def __init__(self, projections: ChallengeProjections) -> None:
        self._projections = projections
        self._sql = projections.sql
        self._posts = PostDeletion(projections)

    async def export(self, username: str) -> dict[str, Any]:
        """All rows of a user, and the posts recommended to them."""
        shown = await self._projections.valkey.call("HGETALL", CLG_SHOWN(username))
        async with self._sql.read() as tx:

            async def rows(table: Table, *columns: str) -> list[dict[str, Any]]:
                name = table.c.creator if table is CHALLENGE else table.c.username
                picked = select(*(table.c[column] for column in columns)).where(name == username).order_by(table.c.id)
                return [dict(row) for row in (await tx.execute(picked)).mappings()]

            tracked = await rows(TRACKING, "challenge_id", "day", "amount_thousandths")
            joined = await rows(MEMBER, "challenge_id", "joined_day", *_REMINDER)
            return {
                "challenges": await rows(
                    CHALLENGE, "id", "title", "category", "is_public", "duration", "unit", "created_ms"
                ),
                "memberships": [
                    {"challenge_id": r["challenge_id"], "since": iso_date(r["joined_day"])}
                    | {name: r[name] for name in _REMINDER}
                    for r in joined
                ],
                "posts": await rows(POST, "id", "challenge_id", "text", "is_break", "created_ms", "edited_ms"),
                "comments": await rows(
                    COMMENT, "id", "post_id", "challenge_id", "content", "reply_to", "created_ms", "edited_ms"
                ),
                "invitations": await rows(INVITATION, "challenge_id", "inviter", "created_ms"),
                "edits": await rows(EDIT, "table_name", "row_id", "text", "until_ms"),
                "reactions": await rows(REACTION, "post_id", "challenge_id", "created_ms"),
                "tracked": [_exported_day(row) for row in tracked],
                "recommended": [
                    {"post_id": int(post), "days": days, "last": iso_date(last)}
                    for post, (days, last) in sorted((post, parse_shown(text)) for post, text in shown.items())
                ],
            }

    async def delete(self, username: str) -> None:
        """Delete a user's rows in batches, and what is derived from them. Repeatable.

        Challenges stay without their creator's name, because other users take part in them."""
        await wait_for_username_locks(self._sql, username)
        while await self._delete_posts(username):
            pass
        while await self._delete_comments(username):
            pass
        for name, table in (("reaction", REACTION), ("tracking", TRACKING), ("mmbr", MEMBER)):
            while await self._delete_rows(username, name, table):
                pass
        async with self._sql.begin() as tx:
            await tx.execute(update(CHALLENGE).where(CHALLENGE.c.creator == username).values(creator=""))
            await tx.execute(delete(EDIT).where(EDIT.c.username == username))
            mine = (INVITATION.c.username == username) | (INVITATION.c.inviter == username)
            await tx.execute(delete(INVITATION).where(mine))
        await self._projections.reactions.rewrite_users([username])
        await self._projections.contributions.update([username])
        await self._projections.valkey.call("DEL", CLG_SHOWN(username))
        async with self._sql.begin() as tx:  # the daily job needs the number of rows, but not the name
            for log in (DELETE_LOG, INSERT_LOG):
                await tx.execute(update(log).where(log.c.username == username).values(username=""))

    async def rename(self, old: str, new: str) -> None:
        """Move a user's rows to a new name in batches, and what is derived from them. Repeatable.

        Where both names have the same row, one is kept."""
        await wait_for_username_locks(self._sql, old)
        for name, table, unique in USER_TABLES:
            while await self._rename_rows(old, new, name, table, unique):
                pass
        async with self._sql.begin() as tx:
            await tx.execute(update(CHALLENGE).where(CHALLENGE.c.creator == old).values(creator=new))
            both = INVITATION.alias()
            again = select(both.c.id).where(both.c.challenge_id == INVITATION.c.challenge_id, both.c.username == new)
            await tx.execute(delete(INVITATION).where(INVITATION.c.username == old, again.exists()))
            await tx.execute(update(INVITATION).where(INVITATION.c.inviter == old).values(inviter=new))
            for table in (INVITATION, EDIT, DELETE_LOG, INSERT_LOG):
                await tx.execute(update(table).where(table.c.username == old).values(username=new))
        await self._projections.reactions.rewrite_users([old, new])
        await self._projections.contributions.update([old, new])
        await self._projections.totals.update([new])
        await self._rename_shown(old, new)

    async def _rename_rows(self, old: str, new: str, name: str, table: Table, unique: Sequence[str]) -> bool:
        async with self._sql.begin() as tx:
            batch = select(table).where(table.c.username == old).order_by(table.c.id).limit(BATCH)
            rows = (await tx.execute(batch)).all()
            ids, deleted = [row.id for row in rows], set[int]()
            if unique:
                other = table.alias()
                same = [other.c[column] == table.c[column] for column in unique]
                duplicate = select(other.c.id).where(other.c.username == new, *same).exists()
                duplicates = await delete_logged(tx, name, table, and_(table.c.id.in_(ids), duplicate))
                deleted = {row.id for row in duplicates}
            await tx.execute(update(table).where(table.c.id.in_(ids), table.c.username == old).values(username=new))
            moved = [row for row in rows if row.id not in deleted]
            events = [*await _events(tx, table, rows, old, on=False), *await _events(tx, table, moved, new, on=True)]
            await add_events(tx, STREAM, events, self._now(), "rename")
        return bool(ids)

    def _now(self) -> int:
        return self._projections.clock.now_ms()

    async def _rename_shown(self, old: str, new: str) -> None:
        valkey, shown = self._projections.valkey, CLG_SHOWN(old)
        posts, left_ms = await valkey.batch([("HGETALL", shown), ("PTTL", shown)])
        if posts:
            await valkey.call("HSET", CLG_SHOWN(new), *(part for entry in posts.items() for part in entry))
            await valkey.call("PEXPIRE", CLG_SHOWN(new), left_ms)
            await valkey.call("DEL", shown)

    async def _delete_posts(self, username: str) -> bool:
        """Delete a batch of posts with all reactions to them; False if there were none."""
        batch = select(POST.c.id).where(POST.c.username == username).order_by(POST.c.id).limit(BATCH)
        ids = [row.id for row in await self._sql.fetch_all(batch)]
        if ids:
            await self._posts.delete(ids)
        return bool(ids)

    async def _delete_comments(self, username: str) -> bool:
        async with self._sql.begin() as tx:
            batch = select(COMMENT.c.id).where(COMMENT.c.username == username).limit(BATCH)
            ids = (await tx.execute(batch)).scalars().all()
            await delete_comments(tx, ids, self._now())
        return bool(ids)

    async def _delete_rows(self, username: str, name: str, table: Table) -> bool:
        async with self._sql.begin() as tx:
            batch = select(table.c.id).where(table.c.username == username).order_by(table.c.id).limit(BATCH)
            ids = (await tx.execute(batch)).scalars().all()
            deleted = await delete_logged(tx, name, table, table.c.id.in_(ids))
            await add_events(tx, STREAM, await _events(tx, table, deleted, username, on=False), self._now())
        return bool(ids)


def _exported_day(row: Any) -> dict[str, Any]:
    amount = row["amount_thousandths"]
    return {
        "challenge_id": row["challenge_id"],
        "date": iso_date(row["day"]),
        "amount": None if amount is None else from_thousandths(amount),
    }


async def _events(
    tx: AsyncConnection, table: Table, rows: Sequence[Any], username: str, *, on: bool
) -> list[EventData]:
    """Return the events for memberships or reactions that begin or end under a name; other rows have none."""
    if table is MEMBER:
        kind = ChallengeJoined if on else ChallengeLeft
        return [kind(row.challenge_id, username) for row in rows]
    if table is not REACTION:
        return []
    posts = select(POST.c.id, POST.c.username).where(POST.c.id.in_([row.post_id for row in rows]))
    authors = {row.id: row.username for row in await tx.execute(posts)}
    return [ChallengeReacted(row.challenge_id, row.post_id, authors.get(row.post_id, ""), username, on) for row in rows]
