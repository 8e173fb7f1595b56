"""Deletes posts in challenges, with their history and the reactions and comments to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Table, delete, select

from plaza.challenges.edits import delete_texts
from plaza.challenges.events import STREAM, ChallengePostDeleted
from plaza.challenges.projection import ChallengeProjections
from plaza.challenges.queries import log_rows
from plaza.challenges.tables import COMMENT, DELETE_LOG, POST, REACTION
from plaza.core.async_engine import AsyncConnection
from plaza.core.sql_events import add_events


class PostDeletion:
    """Deletes rows of posts, and what is derived from them."""

    def __init__(self, projections: ChallengeProjections) -> None:
        self._projections = projections
        self._sql = projections.sql

    async def delete(self, ids: Sequence[int]) -> int:
        """Delete posts with their reactions and comments. Returns how many there were. Repeatable."""
        async with self._sql.begin() as tx:
            # Wait for reactions that are being added: they are deleted and logged too.
            await tx.execute(select(POST.c.id).where(POST.c.id.in_(ids)).order_by(POST.c.id).with_for_update())
            reactions = await delete_logged(tx, "reaction", REACTION, REACTION.c.post_id.in_(ids))
            comments = delete(COMMENT).where(COMMENT.c.post_id.in_(ids)).returning(COMMENT.c.id)
            await delete_texts(tx, "comment", (await tx.execute(comments)).scalars().all())
            await delete_texts(tx, "post", ids)
            posts = await delete_logged(tx, "post", POST, POST.c.id.in_(ids))
            events = [ChallengePostDeleted(row.challenge_id, row.id, row.username) for row in posts]
            await add_events(tx, STREAM, events, self._projections.clock.now_ms())
        await self._projections.update_posts(list(ids))
        await self._projections.reactions.update([(row.username, row.post_id, row.challenge_id) for row in reactions])
        return len(posts)


async def delete_logged(tx: AsyncConnection, name: str, table: Table, *condition: ColumnElement[bool]) -> list[Any]:
    """Delete rows and log them for the daily job. Returns them."""
    deleted = list((await tx.execute(delete(table).where(*condition).returning(table))).all())
    await log_rows(tx, DELETE_LOG, name, deleted)
    return deleted
