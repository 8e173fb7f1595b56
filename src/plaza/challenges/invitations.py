"""Invitations to challenges. A user who is invited sees a private challenge and can join it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import bindparam, delete, func, insert, select

from plaza.challenges.events import STREAM, ChallengeInvitationEnded, ChallengeInvited
from plaza.challenges.model import (
    AlreadyJoined,
    ChallengeInvitation,
    ChallengeInvitationsPage,
    NotInvited,
    TooManyInvitations,
    day_number,
)
from plaza.challenges.projection import ChallengeProjections
from plaza.challenges.queries import read_challenge, read_membership, require_ongoing, require_visible
from plaza.challenges.tables import CHALLENGE, INVITATION
from plaza.core.auth import Actor
from plaza.core.blocks import names_hidden_from
from plaza.core.domain import BlockLists
from plaza.core.errors import Forbidden, NotFound
from plaza.core.notification_source import Recipients
from plaza.core.paging import Page, page_by_position
from plaza.core.sql_events import add_events
from plaza.core.sql_paging import ids_in_table, newest_ids
from plaza.core.username_locks import lock_username

# Open invitations of one challenge.
MAX_INVITATIONS: Final = 1_000

_OF_USER = newest_ids(INVITATION.c.id, INVITATION.c.username == bindparam("viewer"))
_OF_CHALLENGE = newest_ids(INVITATION.c.id, INVITATION.c.challenge_id == bindparam("challenge"))
_BY_IDS = (
    select(INVITATION, CHALLENGE.c.title)
    .join(CHALLENGE, INVITATION.c.challenge_id == CHALLENGE.c.id)
    .where(INVITATION.c.id.in_(bindparam("ids", expanding=True)), CHALLENGE.c.deleted_ms.is_(None))
)


class ChallengeInvitations:
    """Invites users, and lists and ends invitations."""

    def __init__(
        self,
        projections: ChallengeProjections,
        recipients: Recipients | None = None,
        blocks: BlockLists | None = None,
    ) -> None:
        self._projections = projections
        self._sql = projections.sql
        self._recipients = recipients
        self._blocks = blocks

    async def invite(self, actor: Actor, id: int, username: str) -> ChallengeInvitation:
        """Invite a user (the creator or an admin). A second invitation changes nothing."""
        now = self._projections.clock.now_ms()
        async with self._sql.begin() as tx:
            await lock_username(tx, self._projections.valkey, actor.name, actor.since_ms)
            challenge = await read_challenge(tx, id, actor, lock=True)
            _require_creator(actor, challenge)
            require_ongoing(challenge, day_number(now))
            await self._require_user(actor, username)
            if await read_membership(tx, id, username) is not None:
                raise AlreadyJoined("This user is already a member of the challenge.")
            which = (INVITATION.c.challenge_id == id, INVITATION.c.username == username)
            if (row := (await tx.execute(select(INVITATION).where(*which))).one_or_none()) is not None:
                return ChallengeInvitation(id, challenge.title, username, row.inviter, row.created_ms)
            of_challenge = select(func.count()).select_from(INVITATION).where(INVITATION.c.challenge_id == id)
            if (await tx.execute(of_challenge)).scalar_one() >= MAX_INVITATIONS:
                raise TooManyInvitations(f"A challenge has at most {MAX_INVITATIONS:,} open invitations.")
            values = {"challenge_id": id, "username": username, "inviter": actor.name, "created_ms": now}
            await tx.execute(insert(INVITATION).values(values))
            await add_events(tx, STREAM, [ChallengeInvited(id, username, actor.name)], now)
        return ChallengeInvitation(id, challenge.title, username, actor.name, now)

    async def _require_user(self, actor: Actor, username: str) -> None:
        """Raise NotFound for a user who does not exist, or is hidden by a block."""
        known = [username]
        if self._recipients is not None:
            known = list((await self._recipients.current_names([username])).values())
        hidden = await names_hidden_from(self._projections.valkey, self._blocks, actor, known)
        if username not in known or username in hidden:
            raise NotFound("No user has this name.", username=username)

    async def end(self, actor: Actor, id: int, username: str) -> ChallengeInvitation:
        """Decline an invitation (the invited user) or withdraw it (the creator or an admin)."""
        async with self._sql.begin() as tx:
            challenge = await read_challenge(tx, id, actor)
            if actor.name != username:
                _require_creator(actor, challenge)
            which = (INVITATION.c.challenge_id == id, INVITATION.c.username == username)
            row = (await tx.execute(delete(INVITATION).where(*which).returning(INVITATION))).one_or_none()
            if row is None:
                require_visible(actor, challenge)
                raise NotInvited("There is no such invitation.")
            ended = ChallengeInvitationEnded(id, username, row.inviter)
            await add_events(tx, STREAM, [ended], self._projections.clock.now_ms())
        return ChallengeInvitation(id, challenge.title, username, row.inviter, row.created_ms)

    async def page(self, actor: Actor, page: Page) -> ChallengeInvitationsPage:
        """The invitations of a user, latest first, without those of users that a block hides."""
        name = f"invitations of {actor.name}"
        after = ids_in_table(self._sql, name, _OF_USER, viewer=actor.name)

        async def load(ids: Sequence[str]) -> list[ChallengeInvitation | None]:
            found = await self._load(ids)
            inviters = {each.inviter for each in found if each is not None}
            hidden = await names_hidden_from(self._projections.valkey, self._blocks, actor, inviters)
            return [None if each is None or each.inviter in hidden else each for each in found]

        paged = await page_by_position(name, page, after, load)
        return ChallengeInvitationsPage(paged.items, paged.pagination)

    async def page_of_challenge(self, actor: Actor, id: int, page: Page) -> ChallengeInvitationsPage:
        """The open invitations of a challenge (its creator or an admin), latest first."""
        async with self._sql.read() as tx:
            _require_creator(actor, await read_challenge(tx, id, actor))
        name = f"invitations to challenge {id}"
        after = ids_in_table(self._sql, name, _OF_CHALLENGE, challenge=id)
        paged = await page_by_position(name, page, after, self._load)
        return ChallengeInvitationsPage(paged.items, paged.pagination)

    async def _load(self, ids: Sequence[str]) -> list[ChallengeInvitation | None]:
        rows = {row.id: row for row in await self._sql.fetch_all(_BY_IDS, ids=[int(id) for id in ids])}
        return [None if (row := rows.get(int(id))) is None else _from_row(row) for id in ids]


def _from_row(row: Any) -> ChallengeInvitation:
    return ChallengeInvitation(row.challenge_id, row.title, row.username, row.inviter, row.created_ms)


def _require_creator(actor: Actor, challenge: Any) -> None:
    if not actor.is_admin and actor.name != challenge.creator:
        require_visible(actor, challenge)
        raise Forbidden("Only the creator of a challenge and admins manage its invitations.")
