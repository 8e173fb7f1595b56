"""Background jobs: ranking, copies of profiles, deletion."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import httpx
import pytest

from plaza.core.auth import Actor
from plaza.core.keys import TOKEN_CUTOFFS
from plaza.social import account_deletion as deletion_module
from plaza.social import jobs as jobs_module
from plaza.social import keys as k
from plaza.social import model, personal_data_deletion
from plaza.social.model import NewComment, NoProfile, Profile, Registration, UsernameTaken
from tests.social.conftest import ADMIN, Social
from tests.social.killed_process import fail_from_step
from tests.social.user_histories import create_active_user, create_other_users

HOUR = 3600


async def create_posts_with_points(social: Social, count: int) -> list[str]:
    """Create posts of different ages with different points. Returns their ids."""
    author = await social.create_user("mia", "model")
    fans = [await social.create_user(f"fan{i}") for i in range(5)]
    dice = random.Random(2)
    ids = []
    for i in range(count):
        social.clock.advance(seconds=dice.randrange(600))
        post = await social.post(author, f"#all #tag{i % 3}")
        ids.append(post.id)
        for fan in dice.sample(fans, dice.randrange(5)):
            await social.engagements.like(fan, post.id)
        if i % 4 == 0:
            await social.comments.create(fans[0], post.id, NewComment("hi"))
            await social.engagements.bookmark(fans[1], post.id)
    return ids


@pytest.mark.parametrize("passed", [0.5 * HOUR, HOUR, 13 * 24 * HOUR, 15 * 24 * HOUR])
async def test_scores_decay_with_time(social: Social, redis_client: Any, assert_consistent: Any, passed: float) -> None:
    await create_posts_with_points(social, 40)
    social.clock.advance(seconds=passed)
    await social.jobs.rescore()
    keyspace = await assert_consistent()
    if passed > model.RANKED_MS / 1000:
        assert not keyspace["hashtag_ranked"]
        assert not keyspace["ranking_due"]
        assert not keyspace["ranking_posts"]
        assert len(keyspace["hashtag_posts"]) == 4, "the list by time still has them"


async def test_every_score_is_always_within_two_per_cent(social: Social, assert_consistent: Any) -> None:
    await create_posts_with_points(social, 8)
    for _ in range(20):
        social.clock.advance(seconds=10)  # longer than the interval of the job
        await social.jobs.rescore()
        await assert_consistent()


async def test_only_due_posts_are_rescored_in_batches(
    social: Social, monkeypatch: pytest.MonkeyPatch, assert_consistent: Any
) -> None:
    monkeypatch.setattr(jobs_module, "RESCORE_BATCH", 7)
    ids = await create_posts_with_points(social, 30)
    await social.jobs.rescore()
    assert await social.jobs.rescore() == 0
    social.clock.advance(seconds=600)
    posts = [await social.posts.get(None, id) for id in ids]
    with_points = [post for post in posts if post.likesCount or post.commentsCount]
    assert 0 < len(with_points) < len(posts)
    assert await social.jobs.rescore() == len(with_points)
    await assert_consistent()


async def test_likes_of_another_service_count_when_a_post_is_rescored(
    social: Social, redis_client: Any, assert_consistent: Any
) -> None:
    author, fan = await social.create_user("mia", "model"), await social.create_user("fan")
    with_points, without = await social.post(author, "#tea"), await social.post(author, "#tea")
    await social.engagements.like(fan, with_points.id)
    for post in (with_points, without):
        for name in ("ana", "bob"):
            await redis_client.sadd(k.POST_LIKES(post.id), name)
            await redis_client.hincrby(k.POST(post.id), "likesCount", 1)
    social.clock.advance(seconds=2 * HOUR)
    assert await social.jobs.rescore() == 2
    assert await redis_client.zscore(k.HASHTAG_RANKED("tea"), with_points.id) == pytest.approx(9 / 3)
    assert await redis_client.zscore(k.HASHTAG_RANKED("tea"), without.id) == pytest.approx(6 / 3)
    assert await redis_client.zscore(k.MODELS_TOP_ENGAGEMENT(), "mia") == 15


async def test_posts_that_another_service_deleted_or_banned_leave_the_ranking(
    social: Social, redis_client: Any
) -> None:
    author = await social.create_user("mia")
    deleted, banned, damaged, left = [await social.post(author, "#tea") for _ in range(4)]
    for post in (deleted, damaged):
        await redis_client.delete(k.POST(post.id))
    await redis_client.set(k.POST(damaged.id), "not a hash")
    await redis_client.hset(k.POST(banned.id), "banned", "true")
    social.clock.advance(seconds=2 * HOUR)
    assert await social.jobs.rescore() == 4
    assert await redis_client.zrange(k.HASHTAG_RANKED("tea"), 0, -1) == [left.id]
    assert await social.jobs.rescore() == 0


async def test_a_like_after_fourteen_days_ranks_nothing(
    social: Social, ana: Actor, bob: Actor, redis_client: Any
) -> None:
    post = await social.post(ana, "#tea")
    social.clock.advance(days=15)
    await social.jobs.rescore()
    await social.engagements.like(bob, post.id)
    assert await redis_client.exists(k.HASHTAG_RANKED("tea"), k.RANKING_DUE()) == 0


async def test_a_changed_profile_reaches_every_post(
    social: Social, ana: Actor, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_module, "RESTYLE_BATCH", 7)
    posts = [await social.post(ana) for _ in range(20)]
    await social.users.update_profile(ana, "ana", Profile(display_name="Anna", avatar=None))
    assert await social.jobs.restyle() == 20
    await social.users.set_role(ADMIN, "ana", "model")
    assert await social.jobs.restyle() == 20
    assert await social.jobs.restyle() == 0
    for post in posts:
        seen = await redis_client.hmget(k.POST(post.id), "display_name", "avatar", "user_role")
        assert seen == ["Anna", "", "model"]


async def test_an_interrupted_job_continues_and_a_newer_change_wins(
    social: Social, ana: Actor, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_module, "RESTYLE_BATCH", 5)
    posts = [await social.post(ana) for _ in range(12)]
    await social.users.update_profile(ana, "ana", Profile(display_name="Anna"))
    monkeypatch.setattr(social.jobs.functions, "query", fail_from_step(social.jobs.functions.query, 2))
    with pytest.raises(ConnectionError):
        await social.jobs.restyle()
    monkeypatch.undo()
    monkeypatch.setattr(jobs_module, "RESTYLE_BATCH", 5)
    assert await social.jobs.restyle() == 2
    await social.users.update_profile(ana, "ana", Profile(display_name="Annie"))
    await asyncio.gather(
        social.jobs.restyle(), social.users.update_profile(ana, "ana", Profile(display_name="A")), social.jobs.restyle()
    )
    await social.jobs.restyle()
    assert {await redis_client.hget(k.POST(post.id), "display_name") for post in posts} == {"A"}


@pytest.mark.parametrize("place", ["cluster"], indirect=True)
async def test_a_profile_change_after_a_failover_that_lost_the_one_before_reaches_the_posts(
    social: Social, ana: Actor, redis_client: Any
) -> None:
    """The user's node goes back; the post has copied the version that is lost."""
    post = await social.post(ana)
    profile = await redis_client.hgetall(k.USER("ana"))
    for name in ("Anna", "Annie"):
        await social.users.update_profile(ana, "ana", Profile(display_name=name))
        await social.jobs.restyle()
        assert await redis_client.hget(k.POST(post.id), "display_name") == name
        await redis_client.delete(k.USER("ana"), k.USER_VERSION("ana"))
        await redis_client.hset(k.USER("ana"), mapping=profile)


async def test_deleting_an_account_leaves_no_data(social: Social, assert_consistent: Any) -> None:
    await create_other_users(social)
    before = await assert_consistent()
    me = await create_active_user(social, "zoe")
    assert await social.deletion.delete(me, "zoe")
    after = await assert_consistent()
    assert after.pop("token_cutoffs")[()].keys() == {"zoe"}
    del before["token_cutoffs"]
    assert after == before
    with pytest.raises(NoProfile):
        await social.deletion.delete(ADMIN, "zoe")
    assert await social.accounts.register(Registration(username="zoe", password="another one")), "the name is free"


async def test_a_deletion_continues_after_its_process_was_killed(
    social: Social, assert_consistent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create_other_users(social)
    before = await assert_consistent()
    me = await create_active_user(social, "zoe")
    monkeypatch.setattr(personal_data_deletion, "BATCH_SIZE", 2)
    monkeypatch.setattr(social.functions, "run", fail_from_step(social.functions.run, 11))
    with pytest.raises(ConnectionError):
        await social.deletion.delete(me, "zoe")
    monkeypatch.undo()
    with pytest.raises(UsernameTaken):
        await social.accounts.register(Registration(username="zoe", password="another one"))
    await social.jobs.continue_deletions()
    after = await assert_consistent()
    for keyspace in (before, after):
        del keyspace["token_cutoffs"]
    assert after == before


async def test_deletion_and_suspension_revoke_tokens_in_the_same_step(
    social: Social, ana: Actor, bob: Actor, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(name: str) -> None:
        raise ConnectionError

    monkeypatch.setattr(social.auth.revocations, "revoke", fail)
    for work in (social.deletion.delete(ana, "ana"), social.users.suspend(ADMIN, "bob", on=True)):
        with pytest.raises(ConnectionError):
            await work
    assert None not in await redis_client.zmscore(TOKEN_CUTOFFS(), ["ana", "bob"])


async def test_a_late_deletion_step_does_not_affect_a_new_user_with_the_name(
    social: Social, ana: Actor, bob: Actor, assert_consistent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await social.relations.follow(ana, "bob")
    data_deletion = social.deletion._social._deletion
    drop, stalled = data_deletion._drop_entries, list[Any]()

    async def run_late(*args: Any) -> None:
        if not stalled:
            stalled.append(args)
            await social.deletion.finish("ana")  # another worker completes the deletion
            await social.relations.follow(await social.create_user("ana"), "bob")
        await drop(*args)

    monkeypatch.setattr(data_deletion, "_drop_entries", run_late)
    assert await social.deletion.delete(ana, "ana")
    assert stalled
    keyspace = await assert_consistent()
    assert keyspace["user_following"] == {("ana",): {"bob"}}


async def test_a_worker_deletes_a_large_account(
    social: Social, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, assert_consistent: Any
) -> None:
    await create_other_users(social)
    me = await create_active_user(social, "zoe")
    monkeypatch.setattr(deletion_module, "MAX_POSTS_IN_REQUEST", 3)
    mine = social.token(me)
    answer = await http.request("DELETE", "/users/me", json={"password": "correct horse"}, headers=mine)
    assert (answer.status_code, answer.json()) == (202, {"id": "zoe", "deleted": False})
    assert (await http.get("/whoami", headers=mine)).status_code == 401
    assert (await http.get("/users/zoe")).status_code == 404
    await social.jobs.continue_deletions()
    assert not (await assert_consistent())["users_leaving"]


async def test_a_user_without_a_profile_can_be_deleted(
    social: Social, http: httpx.AsyncClient, ana: Actor, assert_consistent: Any
) -> None:
    post = await social.post(ana, "#tea")
    before = await assert_consistent()
    no_profile = social.token(Actor("eve", "user"))
    assert (await http.delete("/users/me", headers=no_profile)).status_code == 404, "no data of this user is stored"
    for path in (f"/posts/{post.id}/like", f"/posts/{post.id}/bookmark", "/users/ana/mute"):
        assert (await http.post(path, headers=no_profile)).status_code == 200
    assert (await http.delete("/users/me", headers=no_profile)).json() == {"id": "eve", "deleted": True}
    assert (await http.get("/whoami", headers=no_profile)).status_code == 401
    after = await assert_consistent()
    assert after.pop("token_cutoffs")[()].keys() == {"eve"}
    del before["token_cutoffs"]
    assert after == before
