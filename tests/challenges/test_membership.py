"""Creating, joining, tracking, posting and reacting, and the errors of each."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from plaza.challenges.model import (
    AlreadyJoined,
    AlreadyTracked,
    ChallengeEnded,
    NewChallenge,
    NewTracking,
    NotJoined,
    NotMember,
    PrivateChallenge,
    ReactionToBreak,
    iso_date,
)
from plaza.core.errors import Invalid, NotFound
from plaza.core.paging import Page, Position, encode_cursor, list_checksum
from tests.challenges.conftest import ANA, BEN, CLEO, ROOT, ChallengeServices, user


async def test_creating_does_not_join(services: ChallengeServices) -> None:
    made = await services.challenge(days=21)
    assert (made.members, made.creator) == (0, "ana")
    assert made.finished_date == iso_date(services.projections.today() + 21)
    with pytest.raises(NotMember):
        await services.post(ANA, made.id)


async def test_the_same_operation_makes_one_challenge(services: ChallengeServices) -> None:
    new = NewChallenge("Run", 1, True, 7)
    first, second = await asyncio.gather(*(services.challenges.create(ANA, new, "again") for _ in range(2)))
    assert first.id == second.id


async def test_joining_twice_is_a_conflict_also_concurrently(services: ChallengeServices) -> None:
    made = await services.challenge()
    results = await asyncio.gather(*(services.challenges.join(BEN, made.id) for _ in range(5)), return_exceptions=True)
    assert sum(isinstance(result, AlreadyJoined) for result in results) == 4
    assert (await services.challenges.read(None, made.id)).members == 1


async def test_a_user_who_leaves_is_no_member_and_can_join_again(services: ChallengeServices) -> None:
    id = await services.joined(BEN)
    assert not (await services.challenges.leave(BEN, id)).member
    with pytest.raises(NotJoined):
        await services.challenges.leave(BEN, id)
    with pytest.raises(NotMember):
        await services.post(BEN, id)
    await services.challenges.join(BEN, id)
    await services.post(BEN, id)


async def test_only_the_creator_and_admins_see_and_join_a_private_challenge(services: ChallengeServices) -> None:
    made = await services.challenge(public=False)
    await services.challenges.join(ROOT, made.id)
    await services.challenges.join(ANA, made.id)
    post = await services.post(ANA, made.id)
    refused: list[Any] = [
        services.challenges.read(BEN, made.id),
        services.challenges.read(None, made.id),
        services.challenges.join(BEN, made.id),
        services.challenges.leave(BEN, made.id),
        services.posts.page(BEN, made.id, Page()),
        services.posts.page(None, made.id, Page()),
        services.posts.react(BEN, post.id),
        services.posts.remove_reaction(BEN, post.id),
    ]
    for call in refused:
        with pytest.raises(PrivateChallenge):
            await call
    assert (await services.posts.react(ROOT, post.id)).changed
    assert [c.id for c in (await services.challenges.page(BEN, Page())).challenges] == []
    assert [c.id for c in (await services.challenges.page(ROOT, Page())).challenges] == [made.id]
    assert [c.id for c in (await services.challenges.page(ANA, Page())).challenges] == [made.id]


async def test_a_member_of_a_private_challenge_sees_it_until_leaving(services: ChallengeServices) -> None:
    made = await services.challenge(public=False)
    await services.challenges.join(ROOT, made.id)
    post = await services.post(ROOT, made.id)
    member = user("root")  # no longer an admin
    assert (await services.challenges.read(member, made.id)).members == 1
    assert [p.id for p in (await services.posts.page(member, made.id, Page())).posts] == [post.id]
    assert [c.id for c in (await services.challenges.page(member, Page())).challenges] == [made.id]
    assert (await services.posts.react(member, post.id)).changed
    await services.challenges.leave(member, made.id)
    assert (await services.posts.remove_reaction(member, post.id)).changed  # users can always remove their own reaction
    for call in (services.challenges.read(member, made.id), services.posts.remove_reaction(member, post.id)):
        with pytest.raises(PrivateChallenge):
            await call
    assert [c.id for c in (await services.challenges.page(member, Page())).challenges] == []


async def test_a_day_is_tracked_once_and_neither_in_the_future_nor_before_joining(services: ChallengeServices) -> None:
    made = await services.challenge(days=3)
    today = services.projections.today()
    services.clock.advance(days=1)
    await services.challenges.join(BEN, made.id)
    await services.track(BEN, made.id)
    with pytest.raises(AlreadyTracked):
        await services.track(BEN, made.id, iso_date(today + 1))
    for wrong in (iso_date(today + 2), iso_date(today), "2026-13-01", "yesterday", "2026-1-1"):
        with pytest.raises(Invalid) as refused:
            await services.track(BEN, made.id, wrong)
        assert refused.value.extra == {"field": "date"}
    with pytest.raises(NotMember):
        await services.track(CLEO, made.id)
    services.clock.advance(days=2)
    with pytest.raises(ChallengeEnded):
        await services.track(BEN, made.id)
    await services.track(BEN, made.id, iso_date(today + 2))  # a day before the end can be tracked later


async def test_an_ended_challenge_accepts_no_members_posts_or_reactions(services: ChallengeServices) -> None:
    id = await services.joined(BEN, days=2)
    post = await services.post(BEN, id)
    services.clock.advance(days=2)
    for refused in (services.challenges.join(CLEO, id), services.post(BEN, id), services.posts.react(CLEO, post.id)):
        with pytest.raises(ChallengeEnded):
            await refused


async def test_reacting_twice_is_one_reaction_and_a_break_gets_none(services: ChallengeServices) -> None:
    id = await services.joined(BEN)
    post, rest = await services.post(BEN, id), await services.post(BEN, id, is_break=True)
    results = await asyncio.gather(*(services.posts.react(CLEO, post.id) for _ in range(5)))
    assert [result.changed for result in results].count(True) == 1
    with pytest.raises(ReactionToBreak):
        await services.posts.react(CLEO, rest.id)
    page = await services.posts.page(None, id, Page())
    assert [(p.id, p.reactions) for p in page.posts] == [(rest.id, 0), (post.id, 1)]
    assert (await services.posts.remove_reaction(CLEO, post.id)).changed
    assert not (await services.posts.remove_reaction(CLEO, post.id)).changed


async def test_missing_challenges_and_posts_are_not_found(services: ChallengeServices) -> None:
    missing: list[Any] = [
        services.challenges.read(None, 99),
        services.challenges.join(ANA, 99),
        services.challenges.leave(ANA, 99),
        services.tracking.track(ANA, 99, NewTracking()),
        services.post(ANA, 99),
        services.posts.page(None, 99, Page()),
        services.posts.react(ANA, 99),
        services.posts.remove_reaction(ANA, 99),
    ]
    for call in missing:
        with pytest.raises(NotFound):
            await call


async def test_pages_neither_repeat_nor_skip_challenges(services: ChallengeServices) -> None:
    ids = [(await services.challenge()).id for _ in range(5)]
    first = await services.challenges.page(None, Page(limit=2))
    await services.challenge()
    second = await services.challenges.page(None, Page(limit=3, cursor=first.pagination.next_cursor))
    assert [c.id for c in (*first.challenges, *second.challenges)] == ids[::-1]


async def test_a_forged_cursor_is_rejected(services: ChallengeServices) -> None:
    for score in (float("inf"), -1.0, 1e300, 2.0**63):
        made_up = encode_cursor(Position(list_checksum("challenges"), score, "1"))
        with pytest.raises(Invalid, match="cursor"):
            await services.challenges.page(None, Page(cursor=made_up))
