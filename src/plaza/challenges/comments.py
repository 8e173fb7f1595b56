"""Comments on posts in challenges: a flat list, in which a comment may reply to an earlier one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import bindparam, delete, select, update

from plaza.challenges.edits import delete_texts, keep_text
from plaza.challenges.events import STREAM, ChallengeCommentDeleted, ChallengeCommented, ChallengeCommentEdited
from plaza.challenges.model import (
    ChallengeComment,
    ChallengeCommentEdit,
    ChallengeCommentsPage,
    DeletedChallengeComment,
    NewChallengeComment,
    clean_text,
    day_number,
)
from plaza.challenges.posts import missing_post, read_post
from plaza.challenges.projection import ChallengeProjections
from plaza.challenges.queries import (
    read_challenge,
    read_visible_challenge,
    require_ongoing,
    require_participant,
    require_visible,
)
from plaza.challenges.tables import COMMENT, POST
from plaza.core.async_engine import AsyncConnection
from plaza.core.auth import Actor
from plaza.core.blocks import names_hidden_from
from plaza.core.domain import BlockLists
from plaza.core.errors import Forbidden, Invalid, NotFound
from plaza.core.paging import Page, page_by_position
from plaza.core.pictures import AvatarAddresses, NoAvatars
from plaza.core.sql_events import add_events
from plaza.core.sql_idempotency import insert_once
from plaza.core.sql_paging import ids_in_table, oldest_ids
from plaza.core.username_locks import lock_username

_OF_POST = oldest_ids(COMMENT.c.id, COMMENT.c.post_id == bindparam("post"))
_BY_IDS = select(COMMENT).where(COMMENT.c.id.in_(bindparam("ids", expanding=True)))


class ChallengeComments:
    """Writes, edits, lists and deletes comments."""

    def __init__(
        self,
        projections: ChallengeProjections,
        blocks: BlockLists | None = None,
        avatars: AvatarAddresses | None = None,
    ) -> None:
        self._projections = projections
        self._sql = projections.sql
        self._blocks = blocks
        self._avatars = avatars or NoAvatars()

    async def create(
        self, actor: Actor, post: int, new: NewChallengeComment, operation: str | None
    ) -> ChallengeComment:
        """Comment on a post: any user in a public challenge, in a private one its members, creator and admins."""
        now = self._projections.clock.now_ms()
        values = {
            "post_id": post,
            "username": actor.name,
            "content": clean_text(new.content, "content"),
            "reply_to": new.reply_to,
            "created_ms": now,
        }
        async with self._sql.begin() as tx:
            await lock_username(tx, self._projections.valkey, actor.name, actor.since_ms)
            found = await read_post(tx, post, lock="update")  # so that no deletion of the post misses the comment
            challenge = await read_challenge(tx, found.challenge_id, actor)
            require_participant(actor, challenge, "comment")
            require_ongoing(challenge, day_number(now))
            await self._require_not_hidden(actor, found)
            await self._require_parent(tx, actor, post, new.reply_to)
            values["challenge_id"] = found.challenge_id
            row, is_new = await insert_once(self._sql, tx, COMMENT, values, operation)
            commented = ChallengeCommented(found.challenge_id, post, row.id, found.username, actor.name)
            await add_events(tx, STREAM, [commented] if is_new else [], now)
        return (await self._with_avatars([row]))[0]

    async def _require_parent(self, tx: AsyncConnection, actor: Actor, post: int, reply_to: int | None) -> None:
        """Raise Invalid unless the comment replied to is on the post, and the caller may see it."""
        if reply_to is None:
            return
        parent = select(COMMENT.c.username).where(COMMENT.c.id == reply_to, COMMENT.c.post_id == post)
        author = (await tx.execute(parent)).scalar()
        if author is None or await self._hidden_from(actor, [author]):
            raise Invalid("must be the id of a comment on this post", field="reply_to")

    async def _require_not_hidden(self, viewer: Actor | None, post: Any) -> None:
        if await self._hidden_from(viewer, [post.username]):
            raise missing_post(post.id)

    async def _hidden_from(self, viewer: Actor | None, names: Collection[str]) -> set[str]:
        return await names_hidden_from(self._projections.valkey, self._blocks, viewer, names)

    async def page(self, viewer: Actor | None, post: int, page: Page) -> ChallengeCommentsPage:
        """A post's comments, oldest first, without those of users that a block hides."""
        await self._require_visible_post(viewer, post)
        name = f"comments on challenge post {post}"

        async def load(ids: Sequence[str]) -> list[ChallengeComment | None]:
            rows = await self._sql.fetch_all(_BY_IDS, ids=[int(id) for id in ids])
            names = {row.username for row in rows}
            hidden = await self._hidden_from(viewer, names)
            found = {each.id: each for each in await self._with_avatars(rows) if each.username not in hidden}
            return [found.get(int(id)) for id in ids]

        after = ids_in_table(self._sql, name, _OF_POST, oldest_first=True, post=post)
        paged = await page_by_position(name, page, after, load)
        return ChallengeCommentsPage(paged.items, paged.pagination)

    async def _require_visible_post(self, viewer: Actor | None, post: int) -> None:
        async with self._sql.read() as tx:
            found = await read_post(tx, post)
        await read_visible_challenge(self._sql, viewer, found.challenge_id)
        await self._require_not_hidden(viewer, found)

    async def edit(self, actor: Actor, id: int, edit: ChallengeCommentEdit) -> ChallengeComment:
        """Change the text of the caller's comment; the old text is kept. Also after the challenge's end."""
        content, now = clean_text(edit.content, "content"), self._projections.clock.now_ms()
        async with self._sql.begin() as tx:
            await lock_username(tx, self._projections.valkey, actor.name, actor.since_ms)
            row = (await tx.execute(select(COMMENT).where(COMMENT.c.id == id).with_for_update())).one_or_none()
            if row is None:
                raise _missing_comment(id)
            require_visible(actor, await read_challenge(tx, row.challenge_id, actor))
            if row.username != actor.name:
                raise Forbidden("Only the author can edit a comment.")
            if row.content != content:
                await keep_text(tx, "comment", id, actor.name, row.content, now)
                await tx.execute(update(COMMENT).where(COMMENT.c.id == id).values(content=content, edited_ms=now))
                edited = ChallengeCommentEdited(row.challenge_id, row.post_id, id, actor.name)
                await add_events(tx, STREAM, [edited], now)
        return await self.get(actor, id)

    async def get(self, viewer: Actor | None, id: int) -> ChallengeComment:
        """A comment that the viewer may see."""
        rows = await self._sql.fetch_all(_BY_IDS, ids=[id])
        if not rows:
            raise _missing_comment(id)
        await read_visible_challenge(self._sql, viewer, rows[0].challenge_id)
        (comment,) = await self._with_avatars(rows)
        if await self._hidden_from(viewer, [comment.username]):
            raise _missing_comment(id)
        return comment

    async def delete(self, actor: Actor, id: int) -> DeletedChallengeComment:
        """Delete a comment: its author, the post's author or an admin. Former members can still do this."""
        joined = COMMENT.join(POST, COMMENT.c.post_id == POST.c.id)
        columns = select(COMMENT, POST.c.username.label("author")).select_from(joined).where(COMMENT.c.id == id)
        async with self._sql.begin() as tx:
            row = (await tx.execute(columns)).one_or_none()
            if row is None:
                raise _missing_comment(id)
            if not actor.is_admin and actor.name not in (row.username, row.author):
                require_visible(actor, await read_challenge(tx, row.challenge_id, actor))
                raise Forbidden("Only the authors of the comment and of the post, and admins, can delete it.")
            if not await delete_comments(tx, [id], self._projections.clock.now_ms()):
                raise _missing_comment(id)
        return DeletedChallengeComment(id)

    async def _with_avatars(self, rows: Sequence[Any]) -> list[ChallengeComment]:
        avatars = await self._avatars.addresses({row.username for row in rows})
        return [
            ChallengeComment(
                id=row.id,
                challenge_id=row.challenge_id,
                post_id=row.post_id,
                username=row.username,
                avatar=avatars.get(row.username, ""),
                content=row.content,
                reply_to=row.reply_to,
                created_at=row.created_ms,
                edited_at=row.edited_ms,
            )
            for row in rows
        ]


async def delete_comments(tx: AsyncConnection, ids: Sequence[int], now_ms: int) -> int:
    """Delete comments with their history, and add events. Returns how many there were. Four statements."""
    deleted = (await tx.execute(delete(COMMENT).where(COMMENT.c.id.in_(ids)).returning(COMMENT))).all()
    await delete_texts(tx, "comment", [row.id for row in deleted])
    posts = select(POST.c.id, POST.c.username).where(POST.c.id.in_({row.post_id for row in deleted}))
    authors = {row.id: row.username for row in await tx.execute(posts)}
    events = [
        ChallengeCommentDeleted(
            row.challenge_id, row.post_id, row.id, authors.get(row.post_id, ""), row.username, row.reply_to
        )
        for row in deleted
    ]
    await add_events(tx, STREAM, events, now_ms)
    return len(deleted)


def _missing_comment(id: int) -> NotFound:
    return NotFound("This comment does not exist.", id=id)
