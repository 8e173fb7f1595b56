"""Edited and deleted posts and challenges."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import select

from plaza.challenges import challenge_deletion
from plaza.challenges.challenge_deletion import ChallengeDeletion
from plaza.challenges.keys import ON_CLG_INFO, POST_CLG_PAIR, USER_CONTRIBUTION
from plaza.challenges.model import (
    ChallengeEdit,
    ChallengeEnded,
    ChallengePostEdit,
    PrivateChallenge,
    UnitInUse,
    iso_date,
)
from plaza.challenges.tables import EDIT, POST, REACTION
from plaza.core.errors import Forbidden, Invalid, NotFound
from plaza.core.paging import Page
from tests.challenges.conftest import ANA, BEN, CLEO, ROOT, ChallengeServices, user
from tests.challenges.expected_state import assert_matches_tables


async def old_texts(services: ChallengeServices, table: str) -> list[str]:
    rows = await services.sql.fetch_all(select(EDIT).where(EDIT.c.table_name == table).order_by(EDIT.c.id))
    return [row.text for row in rows]


async def test_an_edited_post_keeps_its_old_texts(services: ChallengeServices, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plaza.challenges.edits.MAX_EDITS", 2)
    id = await services.joined(BEN)
    post = await services.post(BEN, id)
    for text in ("One.", " Two. ", "Two.", "Three."):
        services.clock.advance(seconds=1)
        edited = await services.posts.edit(BEN, post.id, ChallengePostEdit(text))
    assert (edited.text, edited.edited_at, edited.created_at) == (
        "Three.",
        services.clock.now_ms(),
        post.created_at,
    )
    assert await old_texts(services, "post") == ["One.", "Two."], "the last two, and none twice"
    with pytest.raises(Forbidden):
        await services.posts.edit(ANA, post.id, ChallengePostEdit("Mine."))
    with pytest.raises(Invalid):
        await services.posts.edit(BEN, post.id, ChallengePostEdit(" "))
    with pytest.raises(Forbidden):
        await services.posts.delete(ANA, post.id)
    exported = await services.personal_data.export("ben")
    assert [edit["text"] for edit in exported["edits"]] == ["One.", "Two."]
    await services.posts.delete(BEN, post.id)
    assert await old_texts(services, "post") == []
    with pytest.raises(NotFound):
        await services.posts.delete(BEN, post.id)


async def test_reactions_to_a_post_that_is_being_deleted_go_with_it(
    services: ChallengeServices, redis_client: Any
) -> None:
    """Each is refused or deleted, and logged: the daily job need not rebuild reactions."""
    id = await services.joined(BEN)
    await services.daily_job.run()
    for _ in range(8):
        post = (await services.post(BEN, id)).id
        reacting = [services.posts.react(user(f"user{n}"), post) for n in range(3)]
        for done in await asyncio.gather(*reacting, services.posts.delete(BEN, post), return_exceptions=True):
            assert not isinstance(done, BaseException) or isinstance(done, NotFound), done
    await assert_matches_tables(services, redis_client, ignore="db_len")
    assert (await services.daily_job.run()).rebuilt == []


async def test_a_deleted_post_is_in_no_key(services: ChallengeServices, redis_client: Any) -> None:
    id = await services.joined(BEN, CLEO)
    posts = [await services.post(BEN, id) for _ in range(2)]
    for post in posts:
        await services.posts.react(CLEO, post.id)
    await services.daily_job.run()
    await services.posts.delete(BEN, posts[0].id)
    await services.posts.delete(ROOT, posts[1].id)
    assert await redis_client.hlen(POST_CLG_PAIR()) == 0
    for _ in range(2):
        assert (await services.daily_job.run()).rebuilt == []
        await assert_matches_tables(services, redis_client)


async def test_an_edited_challenge_follows_everywhere(services: ChallengeServices, redis_client: Any) -> None:
    made = await services.challenge(ANA, days=5, unit="km")
    await services.challenges.join(BEN, made.id)
    edited = await services.challenges.edit(ANA, made.id, ChallengeEdit(title="Walk", duration=7, unit="miles"))
    assert (edited.title, edited.duration, edited.unit) == ("Walk", 7, "miles")
    end = iso_date(services.projections.today() + 7)
    assert edited.finished_date == end
    assert await redis_client.hget(ON_CLG_INFO(), made.id) == f"1,1,7,{end}"
    assert await old_texts(services, "clg") == ['{"title":"Run every day","duration":5,"unit":"km"}']
    await services.track(BEN, made.id, amount=1.0)
    with pytest.raises(UnitInUse):
        await services.challenges.edit(ANA, made.id, ChallengeEdit(unit="km"))
    with pytest.raises(Forbidden):
        await services.challenges.edit(ROOT, made.id, ChallengeEdit(title="Mine"))
    services.clock.advance(days=3)
    with pytest.raises(Invalid, match="tomorrow"):
        await services.challenges.edit(ANA, made.id, ChallengeEdit(duration=3))
    services.clock.advance(days=4)
    with pytest.raises(ChallengeEnded):
        await services.challenges.edit(ANA, made.id, ChallengeEdit(duration=30))
    assert (await services.challenges.edit(ANA, made.id, ChallengeEdit(title="Walked"))).title == "Walked"
    private = await services.challenge(ANA, public=False)
    with pytest.raises(PrivateChallenge):
        await services.challenges.edit(BEN, private.id, ChallengeEdit(title="Mine"))
    with pytest.raises(PrivateChallenge):
        await ChallengeDeletion(services.projections).delete(BEN, private.id)


async def test_the_daily_job_completes_an_edit_that_was_interrupted(
    services: ChallengeServices, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def crash(*_: Any) -> None:
        raise RuntimeError

    made = await services.challenge(ANA, days=5)
    await services.daily_job.run()
    with monkeypatch.context() as broken:
        broken.setattr(services.projections, "update_challenges", crash)
        with pytest.raises(RuntimeError):
            await services.challenges.edit(ANA, made.id, ChallengeEdit(duration=9))
    assert (await services.daily_job.run()).rebuilt == []
    await assert_matches_tables(services, redis_client)


async def test_a_deleted_challenge_is_shown_to_no_user_and_its_days_still_count(
    services: ChallengeServices, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(challenge_deletion, "BATCHES_PER_REQUEST", 0)  # as if the request ended here
    deletion = ChallengeDeletion(services.projections)
    id = await services.joined(BEN, CLEO, category=3)
    post = await services.post(BEN, id)
    await services.posts.react(CLEO, post.id)
    await services.track(BEN, id)
    await services.daily_job.run()
    with pytest.raises(Forbidden):
        await deletion.delete(BEN, id)
    await deletion.delete(ANA, id)
    assert await redis_client.hlen(ON_CLG_INFO()) == 0
    for read in (services.challenges.read, services.tracking.progress, services.challenges.join):
        with pytest.raises(NotFound):
            await read(BEN, id)
    with pytest.raises(NotFound):
        await services.posts.read(ROOT, post.id)
    with pytest.raises(NotFound):
        await deletion.delete(ANA, id)
    for actor in (None, BEN, ROOT):
        assert (await services.challenges.page(actor, Page())).challenges == []
    assert await deletion.delete_posts(5) == 1
    for table in (POST, REACTION):
        assert await services.sql.fetch_all(select(table)) == []
    assert await redis_client.hget(USER_CONTRIBUTION(), "ben") == "0,0,1,0,0"
    for _ in range(2):
        assert (await services.daily_job.run()).rebuilt == []
        await assert_matches_tables(services, redis_client)
