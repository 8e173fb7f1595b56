"""Deletes challenges.

A deleted challenge is shown to no user, and its posts are deleted with their reactions. Its row stays with the members
and the days they tracked: these days are theirs, and count as before.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import delete, select, update

from plaza.challenges.events import STREAM, ChallengeDeleted, ChallengeInvitationEnded
from plaza.challenges.model import DeletedChallenge, day_number
from plaza.challenges.post_deletion import PostDeletion
from plaza.challenges.projection import ChallengeProjections
from plaza.challenges.queries import log_changed_challenge, read_challenge, require_visible
from plaza.challenges.tables import CHALLENGE, INVITATION, POST
from plaza.core.auth import Actor
from plaza.core.errors import Forbidden
from plaza.core.sql_events import add_events
from plaza.core.username_locks import lock_username

# Posts deleted in one transaction, and batches that a request deletes itself. A timer deletes the rest.
BATCH: Final = 100
BATCHES_PER_REQUEST: Final = 10

_POSTS: Final = (
    select(POST.c.id)
    .join(CHALLENGE, POST.c.challenge_id == CHALLENGE.c.id)
    .where(CHALLENGE.c.deleted_ms.is_not(None))
    .limit(BATCH)
)


class ChallengeDeletion:
    """Deletes challenges with their posts."""

    def __init__(self, projections: ChallengeProjections) -> None:
        self._projections = projections
        self._sql = projections.sql
        self._posts = PostDeletion(projections)

    async def delete(self, actor: Actor, id: int) -> DeletedChallenge:
        """Delete a challenge (its creator or an admin). Its members are told."""
        now = self._projections.clock.now_ms()
        async with self._sql.begin() as tx:
            await lock_username(tx, self._projections.valkey, actor.name, actor.since_ms)
            row = await read_challenge(tx, id, actor, lock=True)
            if not actor.is_admin and actor.name != row.creator:
                require_visible(actor, row)
                raise Forbidden("Only the creator of a challenge and admins can delete it.")
            # It ends on its first day, so that nothing counts it as ongoing.
            values = {"deleted_ms": now, "ends_day": min(row.ends_day, day_number(row.created_ms))}
            await tx.execute(update(CHALLENGE).where(CHALLENGE.c.id == id).values(values))
            await log_changed_challenge(tx, id)
            invited = delete(INVITATION).where(INVITATION.c.challenge_id == id).returning(INVITATION)
            ended = [ChallengeInvitationEnded(id, i.username, i.inviter) for i in (await tx.execute(invited)).all()]
            await add_events(tx, STREAM, [*ended, ChallengeDeleted(id, row.creator, actor.name)], now)
        await self._projections.update_challenges([id])
        await self.delete_posts(BATCHES_PER_REQUEST, id)
        return DeletedChallenge(id)

    async def delete_posts(self, batches: int, challenge: int | None = None) -> int:
        """Delete posts of deleted challenges. Returns how many there were. Repeatable."""
        statement = _POSTS if challenge is None else _POSTS.where(CHALLENGE.c.id == challenge)
        deleted = 0
        for _ in range(batches):
            ids = [row.id for row in await self._sql.fetch_all(statement)]
            if not ids:
                break
            deleted += await self._posts.delete(ids)
        return deleted
