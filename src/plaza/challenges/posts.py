"""Posts in challenges and reactions to them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from sqlalchemy import Label, Table, bindparam, delete, func, select, update

from plaza.challenges.edits import keep_text
from plaza.challenges.events import STREAM, ChallengePosted, ChallengePostEdited, ChallengeReacted
from plaza.challenges.model import (
    ChallengePost,
    ChallengePostEdit,
    ChallengePostsPage,
    DeletedChallengePost,
    NewChallengePost,
    NotMember,
    Reaction,
    ReactionToBreak,
    clean_text,
    day_number,
)
from plaza.challenges.post_deletion import PostDeletion
from plaza.challenges.projection import ChallengeProjections
from plaza.challenges.queries import (
    log_rows,
    read_challenge,
    read_membership,
    read_visible_challenge,
    require_ongoing,
    require_participant,
    require_visible,
)
from plaza.challenges.tables import COMMENT, DELETE_LOG, INSERT_LOG, POST, REACTION
from plaza.core.async_engine import AsyncConnection
from plaza.core.auth import Actor
from plaza.core.blocks import names_hidden_from
from plaza.core.domain import BlockLists
from plaza.core.errors import Forbidden, NotFound
from plaza.core.paging import Page, page_by_position
from plaza.core.pictures import AvatarAddresses, NoAvatars
from plaza.core.sql_events import add_events
from plaza.core.sql_idempotency import insert_once
from plaza.core.sql_paging import ids_in_table, newest_ids
from plaza.core.username_locks import lock_username


def _number_of(rows: Table, label: str) -> Label[int]:
    """The number of a post's rows in another table."""
    return select(func.count()).select_from(rows).where(rows.c.post_id == POST.c.id).scalar_subquery().label(label)


# What a post is read with.
POST_COUNTS = (_number_of(REACTION, "reactions"), _number_of(COMMENT, "comments"))

_OF_CHALLENGE = newest_ids(POST.c.id, POST.c.challenge_id == bindparam("challenge"))
_BY_IDS = select(POST, *POST_COUNTS).where(POST.c.id.in_(bindparam("ids", expanding=True)))


class ChallengePosts:
    """Writes and reads posts and reactions."""

    def __init__(
        self,
        projections: ChallengeProjections,
        blocks: BlockLists | None = None,
        avatars: AvatarAddresses | None = None,
    ) -> None:
        self._projections = projections
        self._sql = projections.sql
        self._clock = projections.clock
        self._blocks = blocks
        self._avatars = avatars or NoAvatars()
        self._deletion = PostDeletion(projections)

    async def post(self, actor: Actor, challenge: int, new: NewChallengePost, operation: str | None) -> ChallengePost:
        """Post in a challenge (members only). The same operation again returns the same post."""
        now = self._clock.now_ms()
        values = {
            "challenge_id": challenge,
            "username": actor.name,
            "text": clean_text(new.text, "text"),
            "is_break": new.is_break,
            "created_ms": now,
            "day": day_number(now),
        }
        async with self._sql.begin() as tx:
            await lock_username(tx, self._projections.valkey, actor.name, actor.since_ms)
            found = await read_challenge(tx, challenge)
            if await read_membership(tx, challenge, actor.name, lock="share") is None:
                raise NotMember("Only members can post. Join the challenge first.")
            require_ongoing(found, day_number(now))
            created, is_new = await insert_once(self._sql, tx, POST, values, operation)
            if is_new:
                await add_events(tx, STREAM, [ChallengePosted(challenge, created.id, actor.name)], now)
            row = (await tx.execute(select(POST, *POST_COUNTS).where(POST.c.id == created.id))).one()
        await self._projections.update_posts([row.id])
        return post_from_row(row, await self._avatars.addresses([actor.name]))

    async def edit(self, actor: Actor, id: int, edit: ChallengePostEdit) -> ChallengePost:
        """Change the text of the caller's post; the old text is kept."""
        text, now = clean_text(edit.text, "text"), self._clock.now_ms()
        async with self._sql.begin() as tx:
            await lock_username(tx, self._projections.valkey, actor.name, actor.since_ms)
            row = await read_post(tx, id, lock="update")
            require_visible(actor, await read_challenge(tx, row.challenge_id, actor))
            if row.username != actor.name:
                raise Forbidden("Only the author can edit a post.")
            if row.text != text:
                await keep_text(tx, "post", id, actor.name, row.text, now)
                await tx.execute(update(POST).where(POST.c.id == id).values(text=text, edited_ms=now))
                await add_events(tx, STREAM, [ChallengePostEdited(row.challenge_id, id, actor.name)], now)
        return await self.read(actor, id)

    async def delete(self, actor: Actor, id: int) -> DeletedChallengePost:
        """Delete a post (its author or an admin) with its reactions and comments. Former members can still do this."""
        async with self._sql.read() as tx:
            row = await read_post(tx, id)
        if not (actor.is_admin or row.username == actor.name):
            await read_visible_challenge(self._sql, actor, row.challenge_id)
            raise Forbidden("Only the author of a post and admins can delete it.")
        if not await self._deletion.delete([id]):
            raise missing_post(id)
        return DeletedChallengePost(id)

    async def page(self, actor: Actor | None, challenge: int, page: Page) -> ChallengePostsPage:
        """A challenge's posts, newest first, without those of users that a block hides."""
        await read_visible_challenge(self._sql, actor, challenge)
        name = f"posts of challenge {challenge}"
        paged = await page_by_position(
            name,
            page,
            ids_in_table(self._sql, name, _OF_CHALLENGE, challenge=challenge),
            lambda ids: self._read_many(actor, ids),
        )
        return ChallengePostsPage(paged.items, paged.pagination)

    async def read(self, actor: Actor | None, id: int) -> ChallengePost:
        """A post that the viewer may see. Two queries, and a round trip for blocks."""
        (post,) = await self._read_many(actor, [str(id)])
        if post is None:
            raise missing_post(id)
        await read_visible_challenge(self._sql, actor, post.challenge_id)
        return post

    async def _read_many(self, actor: Actor | None, ids: Sequence[str]) -> list[ChallengePost | None]:
        wanted = [int(id) for id in ids]
        rows = await self._sql.fetch_all(_BY_IDS, ids=wanted)
        names = {row.username for row in rows}
        hidden = await self._hidden_from(actor, names)
        avatars = await self._avatars.addresses(names - hidden)
        found = {row.id: post_from_row(row, avatars) for row in rows if row.username not in hidden}
        return [found.get(id) for id in wanted]

    async def _hidden_from(self, actor: Actor | None, authors: Collection[str]) -> set[str]:
        return await names_hidden_from(self._projections.valkey, self._blocks, actor, authors)

    async def react(self, actor: Actor, post: int) -> Reaction:
        """React to a post. Repeating it changes nothing."""
        now = self._clock.now_ms()
        async with self._sql.begin() as tx:
            await lock_username(tx, self._projections.valkey, actor.name, actor.since_ms)
            row = await self._read_post_for_reaction(tx, actor, post, day_number(now))
            values = {
                "post_id": post,
                "challenge_id": row.challenge_id,
                "username": actor.name,
                "created_ms": now,
            }
            statement = self._sql.insert(REACTION).values(values).on_conflict_do_nothing()
            new = (await tx.execute(statement.returning(REACTION))).all()
            await log_rows(tx, INSERT_LOG, "reaction", new)
            reacted = ChallengeReacted(row.challenge_id, post, row.username, actor.name, True)
            await add_events(tx, STREAM, [reacted] if new else [], now)
        await self._projections.reactions.update([(actor.name, post, row.challenge_id)])
        return Reaction(post, actor.name, True, bool(new))

    async def _read_post_for_reaction(self, tx: AsyncConnection, actor: Actor, post: int, today: int) -> Any:
        row = await read_post(tx, post, lock="share")  # so that no deletion of the post misses the reaction
        challenge = await read_challenge(tx, row.challenge_id, actor)
        require_participant(actor, challenge, "react")
        if await self._hidden_from(actor, [row.username]):
            raise missing_post(post)
        require_ongoing(challenge, today)
        if row.is_break:
            raise ReactionToBreak("Breaks cannot get reactions.")
        return row

    async def remove_reaction(self, actor: Actor, post: int) -> Reaction:
        """Remove a reaction, if there is one. Former members of a private challenge can still do this."""
        mine = (REACTION.c.post_id == post, REACTION.c.username == actor.name)
        async with self._sql.begin() as tx:
            row = await read_post(tx, post)
            deleted = (await tx.execute(delete(REACTION).where(*mine).returning(REACTION))).all()
            if not deleted:
                require_visible(actor, await read_challenge(tx, row.challenge_id, actor))
            await log_rows(tx, DELETE_LOG, "reaction", deleted)
            removed = ChallengeReacted(row.challenge_id, post, row.username, actor.name, False)
            await add_events(tx, STREAM, [removed] if deleted else [], self._clock.now_ms())
        await self._projections.reactions.update([(actor.name, post, row.challenge_id)])
        return Reaction(post, actor.name, False, bool(deleted))


async def read_post(tx: AsyncConnection, id: int, *, lock: Literal["share", "update"] | None = None) -> Any:
    """A post's row. With `lock` it stays until the transaction ends; with "update" others cannot change it either."""
    statement = select(POST).where(POST.c.id == id)
    if lock is not None:
        statement = statement.with_for_update(read=lock == "share", key_share=lock == "share")
    row = (await tx.execute(statement)).one_or_none()
    if row is None:
        raise missing_post(id)
    return row


def missing_post(id: int) -> NotFound:
    return NotFound("This post does not exist.", id=id)


def post_from_row(row: Any, avatars: Mapping[str, str]) -> ChallengePost:
    return ChallengePost(
        id=row.id,
        challenge_id=row.challenge_id,
        username=row.username,
        avatar=avatars.get(row.username, ""),
        text=row.text,
        is_break=row.is_break,
        created_at=row.created_ms,
        reactions=row.reactions,
        edited_at=row.edited_ms,
        commentsCount=row.comments,
    )
