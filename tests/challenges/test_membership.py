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
from tests.challenges.conftest import ANA, BEN, CLEO, ROOT, World, user


async def test_creating_does_not_join(world: World) -> None:
    made = await world.challenge(days=21)
    assert (made.members, made.creator) == (0, "ana")
    assert made.finished_date == iso_date(world.projections.today() + 21)
    with pytest.raises(NotMember):
        await world.post(ANA, made.id)


async def test_the_same_operation_makes_one_challenge(world: World) -> None:
    new = NewChallenge("Run", 1, True, 7)
    first, second = await asyncio.gather(*(world.challenges.create(ANA, new, "again") for _ in range(2)))
    assert first.id == second.id


async def test_joining_twice_is_a_conflict_also_concurrently(world: World) -> None:
    made = await world.challenge()
    results = await asyncio.gather(*(world.challenges.join(BEN, made.id) for _ in range(5)), return_exceptions=True)
    assert sum(isinstance(result, AlreadyJoined) for result in results) == 4
    assert (await world.challenges.read(None, made.id)).members == 1


async def test_a_user_who_leaves_is_no_member_and_can_join_again(world: World) -> None:
    id = await world.joined(BEN)
    assert not (await world.challenges.leave(BEN, id)).member
    with pytest.raises(NotJoined):
        await world.challenges.leave(BEN, id)
    with pytest.raises(NotMember):
        await world.post(BEN, id)
    await world.challenges.join(BEN, id)
    await world.post(BEN, id)


async def test_only_the_creator_and_admins_see_and_join_a_private_challenge(world: World) -> None:
    made = await world.challenge(public=False)
    await world.challenges.join(ROOT, made.id)
    await world.challenges.join(ANA, made.id)
    post = await world.post(ANA, made.id)
    refused: list[Any] = [
        world.challenges.read(BEN, made.id),
        world.challenges.read(None, made.id),
        world.challenges.join(BEN, made.id),
        world.challenges.leave(BEN, made.id),
        world.posts.page(BEN, made.id, Page()),
        world.posts.page(None, made.id, Page()),
        world.posts.react(BEN, post.id),
        world.posts.remove_reaction(BEN, post.id),
    ]
    for call in refused:
        with pytest.raises(PrivateChallenge):
            await call
    assert (await world.posts.react(ROOT, post.id)).changed
    assert [c.id for c in (await world.challenges.page(BEN, Page())).challenges] == []
    assert [c.id for c in (await world.challenges.page(ROOT, Page())).challenges] == [made.id]
    assert [c.id for c in (await world.challenges.page(ANA, Page())).challenges] == [made.id]


async def test_a_member_of_a_private_challenge_sees_it_until_leaving(world: World) -> None:
    made = await world.challenge(public=False)
    await world.challenges.join(ROOT, made.id)
    post = await world.post(ROOT, made.id)
    member = user("root")  # no longer an admin
    assert (await world.challenges.read(member, made.id)).members == 1
    assert [p.id for p in (await world.posts.page(member, made.id, Page())).posts] == [post.id]
    assert [c.id for c in (await world.challenges.page(member, Page())).challenges] == [made.id]
    assert (await world.posts.react(member, post.id)).changed
    await world.challenges.leave(member, made.id)
    assert (await world.posts.remove_reaction(member, post.id)).changed  # users can always remove their own reaction
    for call in (world.challenges.read(member, made.id), world.posts.remove_reaction(member, post.id)):
        with pytest.raises(PrivateChallenge):
            await call
    assert [c.id for c in (await world.challenges.page(member, Page())).challenges] == []


async def test_a_day_is_tracked_once_and_neither_in_the_future_nor_before_joining(world: World) -> None:
    made = await world.challenge(days=3)
    today = world.projections.today()
    world.clock.advance(days=1)
    await world.challenges.join(BEN, made.id)
    await world.track(BEN, made.id)
    with pytest.raises(AlreadyTracked):
        await world.track(BEN, made.id, iso_date(today + 1))
    for wrong in (iso_date(today + 2), iso_date(today), "2026-13-01", "yesterday", "2026-1-1"):
        with pytest.raises(Invalid) as refused:
            await world.track(BEN, made.id, wrong)
        assert refused.value.extra == {"field": "date"}
    with pytest.raises(NotMember):
        await world.track(CLEO, made.id)
    world.clock.advance(days=2)
    with pytest.raises(ChallengeEnded):
        await world.track(BEN, made.id)
    await world.track(BEN, made.id, iso_date(today + 2))  # a day before the end can be tracked later


async def test_an_ended_challenge_accepts_no_members_posts_or_reactions(world: World) -> None:
    id = await world.joined(BEN, days=2)
    post = await world.post(BEN, id)
    world.clock.advance(days=2)
    for refused in (world.challenges.join(CLEO, id), world.post(BEN, id), world.posts.react(CLEO, post.id)):
        with pytest.raises(ChallengeEnded):
            await refused


async def test_reacting_twice_is_one_reaction_and_a_break_gets_none(world: World) -> None:
    id = await world.joined(BEN)
    post, rest = await world.post(BEN, id), await world.post(BEN, id, is_break=True)
    results = await asyncio.gather(*(world.posts.react(CLEO, post.id) for _ in range(5)))
    assert [result.changed for result in results].count(True) == 1
    with pytest.raises(ReactionToBreak):
        await world.posts.react(CLEO, rest.id)
    page = await world.posts.page(None, id, Page())
    assert [(p.id, p.reactions) for p in page.posts] == [(rest.id, 0), (post.id, 1)]
    assert (await world.posts.remove_reaction(CLEO, post.id)).changed
    assert not (await world.posts.remove_reaction(CLEO, post.id)).changed


async def test_missing_challenges_and_posts_are_not_found(world: World) -> None:
    missing: list[Any] = [
        world.challenges.read(None, 99),
        world.challenges.join(ANA, 99),
        world.challenges.leave(ANA, 99),
        world.challenges.track(ANA, 99, NewTracking()),
        world.post(ANA, 99),
        world.posts.page(None, 99, Page()),
        world.posts.react(ANA, 99),
        world.posts.remove_reaction(ANA, 99),
    ]
    for call in missing:
        with pytest.raises(NotFound):
            await call


async def test_pages_neither_repeat_nor_skip_challenges(world: World) -> None:
    ids = [(await world.challenge()).id for _ in range(5)]
    first = await world.challenges.page(None, Page(limit=2))
    await world.challenge()
    second = await world.challenges.page(None, Page(limit=3, cursor=first.pagination.next_cursor))
    assert [c.id for c in (*first.challenges, *second.challenges)] == ids[::-1]


async def test_a_forged_cursor_is_rejected(world: World) -> None:
    for score in (float("inf"), -1.0, 1e300, 2.0**63):
        made_up = encode_cursor(Position(list_checksum("challenges"), score, "1"))
        with pytest.raises(Invalid, match="cursor"):
            await world.challenges.page(None, Page(cursor=made_up))
