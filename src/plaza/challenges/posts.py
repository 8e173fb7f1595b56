"""Posts of challenges, and reactions to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import bindparam, delete, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from plaza.challenges.model import IsBreak, NewPost, NotMember, Post, PostsPage, Reaction, clean, day_of
from plaza.challenges.projection import Derived
from plaza.challenges.queries import challenge_for, challenge_of, member_of, note, require_ongoing, require_sight
from plaza.challenges.tables import ARRIVAL, POST, REACTION, REMOVAL
from plaza.core.auth import Actor
from plaza.core.clock import Clock
from plaza.core.errors import NotFound
from plaza.core.paging import Page, page_by_position
from plaza.core.sql import Sql
from plaza.core.sql_paging import ids_in_table, newest_ids
from plaza.core.username_locks import lock_username

REACTIONS = (select(func.count()).select_from(REACTION).where(REACTION.c.post_id == POST.c.id).scalar_subquery()).label(
    "reactions"
)

_OF_CHALLENGE = newest_ids(POST.c.id, POST.c.challenge_id == bindparam("challenge"))
_BY_IDS = select(POST, REACTIONS).where(POST.c.id.in_(bindparam("ids", expanding=True)))


class Posts:
    """What members tell."""

    def __init__(self, sql: Sql, derived: Derived, clock: Clock) -> None:
        self._sql = sql
        self._derived = derived
        self._clock = clock

    async def post(self, actor: Actor, challenge: int, new: NewPost, operation: str) -> Post:
        """Post in a challenge that one is a member of. The same operation again gives the same post."""
        now = self._clock.now_ms()
        values = {
            "challenge_id": challenge,
            "username": actor.name,
            "text": clean(new.text, "text"),
            "is_break": new.is_break,
            "created_ms": now,
            "day": day_of(now),
            "operation": operation,
        }
        async with self._sql.begin() as tx:
            await lock_username(tx, self._derived.valkey, actor.name, actor.since_ms)
            found = await challenge_of(tx, challenge)
            if await member_of(tx, challenge, actor.name, lock=True) is None:
                raise NotMember("Only members post.")
            require_ongoing(found, day_of(now))
            statement = self._sql.insert(POST).values(values).on_conflict_do_nothing(index_elements=["operation"])
            id = (await tx.execute(statement.returning(POST.c.id))).scalar()
            where = POST.c.operation == operation if id is None else POST.c.id == id
            row = (await tx.execute(select(POST, REACTIONS).where(where))).one()
        await self._derived.posts([row.id])
        return as_post(row)

    async def page(self, actor: Actor | None, challenge: int, page: Page) -> PostsPage:
        """A challenge's posts, the newest first."""
        await challenge_for(self._sql, actor, challenge)
        name = f"posts of challenge {challenge}"
        paged = await page_by_position(
            name, page, ids_in_table(self._sql, name, _OF_CHALLENGE, challenge=challenge), self._read_many
        )
        return PostsPage(paged.items, paged.pagination)

    async def read(self, actor: Actor | None, id: int) -> Post:
        """One post, for who may look into its challenge."""
        (post,) = await self._read_many([str(id)])
        if post is None:
            raise _unknown(id)
        await challenge_for(self._sql, actor, post.challenge_id)
        return post

    async def _read_many(self, ids: Sequence[str]) -> list[Post | None]:
        wanted = [int(id) for id in ids]
        found = {row.id: as_post(row) for row in await self._sql.fetch_all(_BY_IDS, ids=wanted)}
        return [found.get(id) for id in wanted]

    async def react(self, actor: Actor, post: int) -> Reaction:
        """React to a post. A second reaction changes nothing."""
        now = self._clock.now_ms()
        async with self._sql.begin() as tx:
            await lock_username(tx, self._derived.valkey, actor.name, actor.since_ms)
            row = await self._reachable(tx, actor, post, day_of(now))
            values = {
                "post_id": post,
                "challenge_id": row.challenge_id,
                "username": actor.name,
                "created_ms": now,
            }
            statement = self._sql.insert(REACTION).values(values).on_conflict_do_nothing()
            new = (await tx.execute(statement.returning(REACTION))).all()
            await note(tx, ARRIVAL, "reaction", new)
        await self._derived.reactions([(actor.name, post, row.challenge_id)])
        return Reaction(post, actor.name, True, bool(new))

    async def _reachable(self, tx: AsyncConnection, actor: Actor, post: int, today: int) -> Any:
        row = await _post_of(tx, post)
        challenge = await challenge_of(tx, row.challenge_id, actor)
        require_sight(actor, challenge)
        require_ongoing(challenge, today)
        if row.is_break:
            raise IsBreak("A break takes no reactions.")
        return row

    async def take_back(self, actor: Actor, post: int) -> Reaction:
        """Take a reaction back. Without one, nothing changes. Who left a private challenge may still do it."""
        mine = (REACTION.c.post_id == post, REACTION.c.username == actor.name)
        async with self._sql.begin() as tx:
            row = await _post_of(tx, post)
            gone = (await tx.execute(delete(REACTION).where(*mine).returning(REACTION))).all()
            if not gone:
                require_sight(actor, await challenge_of(tx, row.challenge_id, actor))
            await note(tx, REMOVAL, "reaction", gone)
        await self._derived.reactions([(actor.name, post, row.challenge_id)])
        return Reaction(post, actor.name, False, bool(gone))


async def _post_of(tx: AsyncConnection, id: int) -> Any:
    row = (await tx.execute(select(POST).where(POST.c.id == id))).one_or_none()
    if row is None:
        raise _unknown(id)
    return row


def _unknown(id: int) -> NotFound:
    return NotFound("There is no such post.", id=id)


def as_post(row: Any) -> Post:
    return Post(
        id=row.id,
        challenge_id=row.challenge_id,
        username=row.username,
        text=row.text,
        is_break=row.is_break,
        created_at=row.created_ms,
        reactions=row.reactions,
    )
