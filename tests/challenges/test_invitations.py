"""Invitations to private challenges."""

from __future__ import annotations

import asyncio

import pytest

from plaza.challenges import invitations as module
from plaza.challenges.challenge_deletion import ChallengeDeletion
from plaza.challenges.invitations import ChallengeInvitations
from plaza.challenges.model import (
    AlreadyJoined,
    ChallengeMembership,
    NotInvited,
    NotMember,
    PrivateChallenge,
    TooManyInvitations,
)
from plaza.core.errors import Forbidden
from plaza.core.paging import Page
from tests.challenges.conftest import ANA, BEN, CLEO, ROOT, ChallengeServices


async def test_an_invited_user_sees_a_private_challenge_and_joins_it(services: ChallengeServices) -> None:
    invitations = ChallengeInvitations(services.projections)
    id = (await services.challenge(ANA, public=False)).id
    for actor in (BEN, CLEO):
        with pytest.raises(PrivateChallenge):
            await invitations.invite(actor, id, "cleo")
    first = await invitations.invite(ANA, id, "ben")
    services.clock.advance(seconds=1)
    assert await invitations.invite(ROOT, id, "ben") == first, "the second changes nothing"
    assert [each.username for each in (await invitations.page_of_challenge(ROOT, id, Page())).invitations] == ["ben"]
    assert [each.challenge_id for each in (await invitations.page(BEN, Page())).invitations] == [id]
    assert (await services.challenges.read(BEN, id)).id == id
    await services.challenges.join(ANA, id)
    post = (await services.post(ANA, id)).id
    with pytest.raises(NotMember):
        await services.posts.react(BEN, post)
    with pytest.raises(Forbidden):
        await invitations.page_of_challenge(BEN, id, Page())
    joined = await asyncio.gather(*(services.challenges.join(BEN, id) for _ in range(4)), return_exceptions=True)
    assert [type(each) for each in joined if not isinstance(each, ChallengeMembership)] == [AlreadyJoined] * 3
    assert (await services.posts.react(BEN, post)).changed
    assert (await invitations.page(BEN, Page())).invitations == []
    with pytest.raises(AlreadyJoined):
        await invitations.invite(ANA, id, "ben")
    await services.challenges.leave(BEN, id)
    with pytest.raises(PrivateChallenge):
        await services.challenges.join(BEN, id)


async def test_invitations_end_by_either_side_by_deletion_and_follow_a_rename(
    services: ChallengeServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    invitations = ChallengeInvitations(services.projections)
    id = (await services.challenge(ANA, public=False)).id
    for actor in (BEN, ANA):
        await invitations.invite(ANA, id, "ben")
        await invitations.end(actor, id, "ben")
        with pytest.raises(PrivateChallenge):
            await services.challenges.read(BEN, id)
    with pytest.raises(NotInvited):
        await invitations.end(ANA, id, "ben")
    await invitations.invite(ANA, id, "ben")
    monkeypatch.setattr(module, "MAX_INVITATIONS", 1)
    with pytest.raises(TooManyInvitations):
        await invitations.invite(ANA, id, "cleo")
    await services.personal_data.rename("ben", "cleo")
    assert [each.challenge_id for each in (await invitations.page(CLEO, Page())).invitations] == [id]
    exported = await services.personal_data.export("cleo")
    assert [each["inviter"] for each in exported["invitations"]] == ["ana"]
    await ChallengeDeletion(services.projections).delete(ANA, id)
    assert (await invitations.page(CLEO, Page())).invitations == []
