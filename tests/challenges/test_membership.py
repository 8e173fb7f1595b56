"""Creating, joining, tracking, posting and reacting, and every way in which that is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from plaza.challenges.model import (
    AlreadyJoined,
    AlreadyTracked,
    Ended,
    IsBreak,
    NewChallenge,
    NewTracking,
    NotJoined,
    NotMember,
    Private,
    date_of,
)
from plaza.core.errors import Invalid, NotFound
from plaza.core.paging import Page, Position, encode_cursor, list_checksum
from tests.challenges.conftest import ANA, BEN, CLEO, ROOT, World, person


async def test_creating_does_not_join(world: World) -> None:
    made = await world.challenge(days=21)
    assert (made.members, made.creator) == (0, "ana")
    assert made.finished_date == date_of(world.derived.today() + 21)
    with pytest.raises(NotMember):
        await world.post(ANA, made.id)


async def test_the_same_operation_makes_one_challenge(world: World) -> None:
    new = NewChallenge("Run", 1, True, 7)
    first, second = await asyncio.gather(*(world.challenges.create(ANA, new, "again") for _ in range(2)))
    assert first.id == second.id


async def test_joining_twice_is_a_conflict_also_at_once(world: World) -> None:
    made = await world.challenge()
    results = await asyncio.gather(*(world.challenges.join(BEN, made.id) for _ in range(5)), return_exceptions=True)
    assert sum(isinstance(result, AlreadyJoined) for result in results) == 4
    assert (await world.challenges.read(None, made.id)).members == 1


async def test_who_leaves_is_a_member_no_more_and_may_come_back(world: World) -> None:
    id = await world.joined(BEN)
    assert not (await world.challenges.leave(BEN, id)).member
    with pytest.raises(NotJoined):
        await world.challenges.leave(BEN, id)
    with pytest.raises(NotMember):
        await world.post(BEN, id)
    await world.challenges.join(BEN, id)
    await world.post(BEN, id)


async def test_a_private_challenge_is_its_creators_and_admins(world: World) -> None:
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
        world.posts.take_back(BEN, post.id),
    ]
    for asked in refused:
        with pytest.raises(Private):
            await asked
    assert (await world.posts.react(ROOT, post.id)).changed
    assert [c.id for c in (await world.challenges.page(BEN, Page())).challenges] == []
    assert [c.id for c in (await world.challenges.page(ROOT, Page())).challenges] == [made.id]
    assert [c.id for c in (await world.challenges.page(ANA, Page())).challenges] == [made.id]


async def test_a_member_of_a_private_challenge_sees_it_until_they_leave(world: World) -> None:
    made = await world.challenge(public=False)
    await world.challenges.join(ROOT, made.id)
    post = await world.post(ROOT, made.id)
    member = person("root")  # an admin no more
    assert (await world.challenges.read(member, made.id)).members == 1
    assert [p.id for p in (await world.posts.page(member, made.id, Page())).posts] == [post.id]
    assert [c.id for c in (await world.challenges.page(member, Page())).challenges] == [made.id]
    assert (await world.posts.react(member, post.id)).changed
    await world.challenges.leave(member, made.id)
    assert (await world.posts.take_back(member, post.id)).changed  # their own they may always take back
    for asked in (world.challenges.read(member, made.id), world.posts.take_back(member, post.id)):
        with pytest.raises(Private):
            await asked
    assert [c.id for c in (await world.challenges.page(member, Page())).challenges] == []


async def test_a_day_is_tracked_once_and_neither_ahead_nor_before_joining(world: World) -> None:
    made = await world.challenge(days=3)
    today = world.derived.today()
    world.clock.advance(days=1)
    await world.challenges.join(BEN, made.id)
    await world.track(BEN, made.id)
    with pytest.raises(AlreadyTracked):
        await world.track(BEN, made.id, date_of(today + 1))
    for wrong in (date_of(today + 2), date_of(today), "2026-13-01", "yesterday", "2026-1-1"):
        with pytest.raises(Invalid) as refused:
            await world.track(BEN, made.id, wrong)
        assert refused.value.extra == {"field": "date"}
    with pytest.raises(NotMember):
        await world.track(CLEO, made.id)
    world.clock.advance(days=2)
    with pytest.raises(Ended):
        await world.track(BEN, made.id)
    await world.track(BEN, made.id, date_of(today + 2))  # what was done in time may be noted later


async def test_an_ended_challenge_takes_no_members_posts_or_reactions(world: World) -> None:
    id = await world.joined(BEN, days=2)
    post = await world.post(BEN, id)
    world.clock.advance(days=2)
    for refused in (world.challenges.join(CLEO, id), world.post(BEN, id), world.posts.react(CLEO, post.id)):
        with pytest.raises(Ended):
            await refused


async def test_reacting_twice_is_one_reaction_and_a_break_takes_none(world: World) -> None:
    id = await world.joined(BEN)
    post, rest = await world.post(BEN, id), await world.post(BEN, id, is_break=True)
    results = await asyncio.gather(*(world.posts.react(CLEO, post.id) for _ in range(5)))
    assert [result.changed for result in results].count(True) == 1
    with pytest.raises(IsBreak):
        await world.posts.react(CLEO, rest.id)
    page = await world.posts.page(None, id, Page())
    assert [(p.id, p.reactions) for p in page.posts] == [(rest.id, 0), (post.id, 1)]
    assert (await world.posts.take_back(CLEO, post.id)).changed
    assert not (await world.posts.take_back(CLEO, post.id)).changed


async def test_what_is_not_there_is_not_found(world: World) -> None:
    missing: list[Any] = [
        world.challenges.read(None, 99),
        world.challenges.join(ANA, 99),
        world.challenges.leave(ANA, 99),
        world.challenges.track(ANA, 99, NewTracking()),
        world.post(ANA, 99),
        world.posts.page(None, 99, Page()),
        world.posts.react(ANA, 99),
        world.posts.take_back(ANA, 99),
    ]
    for asked in missing:
        with pytest.raises(NotFound):
            await asked


async def test_pages_neither_repeat_nor_skip(world: World) -> None:
    ids = [(await world.challenge()).id for _ in range(5)]
    first = await world.challenges.page(None, Page(limit=2))
    await world.challenge()
    second = await world.challenges.page(None, Page(limit=3, cursor=first.pagination.next_cursor))
    assert [c.id for c in (*first.challenges, *second.challenges)] == ids[::-1]


async def test_a_made_up_cursor_is_refused(world: World) -> None:
    for score in (float("inf"), -1.0, 1e300, 2.0**63):
        made_up = encode_cursor(Position(list_checksum("challenges"), score, "1"))
        with pytest.raises(Invalid, match="no cursor of ours"):
            await world.challenges.page(None, Page(cursor=made_up))
