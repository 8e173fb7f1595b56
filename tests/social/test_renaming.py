"""Renaming a user moves all data, also after a kill at any step."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import Any

import httpx
import pytest

from plaza.core.auth import Actor
from plaza.core.errors import Conflict, Invalid, NotFound
from plaza.core.keys import LEASE
from plaza.core.paging import Page
from plaza.social.account_renaming import AccountRenaming
from plaza.social.keys import POST
from plaza.social.model import NewComment, PasswordLogin, Profile, Registration, UsernameTaken, WrongPassword
from tests.social.conftest import ADMIN, Social
from tests.social.consistency import Keyspace
from tests.social.killed_process import fail_from_step
from tests.social.user_histories import create_active_user, create_other_users

# Keys that a renaming itself writes, keys that end with a session, and queues of work that may already be done.
IGNORED_KEYS = (
    "token_cutoffs",
    "lease",
    "fence",
    "tmp_home",
    "tmp_home_state",
    "users_restyle",
    "feeds_drop",
    "users_renamed",
)


def renaming(social: Social) -> AccountRenaming:
    found: AccountRenaming = social.parts[AccountRenaming]
    return found


def with_new_name(data: Any, old: str, new: str) -> Any:
    """Replace the old name by the new one in all keys and values."""
    if isinstance(data, dict):
        return {with_new_name(key, old, new): with_new_name(value, old, new) for key, value in data.items()}
    if isinstance(data, (tuple, list, set)):
        return type(data)(with_new_name(part, old, new) for part in data)
    return new if data == old else data


def without_ignored_keys(keyspace: Keyspace) -> Keyspace:
    remaining = {family: members for family, members in keyspace.items() if family not in IGNORED_KEYS}
    remaining["auth_user"] = {
        parts: {field: value for field, value in fields.items() if not field.startswith("family:")}
        for parts, fields in keyspace["auth_user"].items()
    }
    return remaining


async def create_user_with_all_data(social: Social) -> Actor:
    """Create a user who has used every feature, also as an admin and on own posts."""
    await create_other_users(social)
    zoe = await create_active_user(social, "zoe")
    own_post = await social.post(zoe, "#own")
    for act in (social.engagements.like, social.engagements.bookmark):
        await act(zoe, own_post.id)
    await social.comments.create(zoe, own_post.id, NewComment("my own"))
    await social.relations.mute(zoe, "o4")
    await social.relations.block(zoe, "o4")  # after muting
    other_post = await social.post(Actor("o5", "model"), "#tea")
    await social.engagements.bookmark(zoe, other_post.id)
    await social.users.set_role(ADMIN, "zoe", "admin")
    await social.posts.ban(Actor("zoe", "admin"), other_post.id, on=True)
    await social.users.suspend(Actor("zoe", "admin"), "o5", on=True)
    await social.users.set_role(ADMIN, "zoe", "model")
    await social.jobs.restyle()
    return zoe


async def test_a_renaming_moves_everything_to_the_new_name(
    social: Social, assert_consistent: Any, http: httpx.AsyncClient
) -> None:
    zoe = await create_user_with_all_data(social)
    before, token = await assert_consistent(), social.token(zoe)
    assert await renaming(social).rename("zoe", "zara") > 0
    after = await assert_consistent()
    assert without_ignored_keys(after) == with_new_name(without_ignored_keys(before), "zoe", "zara")
    assert (await http.get("/whoami", headers=token)).status_code == 401
    with pytest.raises(WrongPassword):
        await social.accounts.login(PasswordLogin("zoe", "correct horse"))
    assert (await social.accounts.login(PasswordLogin("zara", "correct horse"))).user.username == "zara"
    assert await social.accounts.register(Registration(username="zoe", password="another one")), "the old name is free"


async def create_user_with_one_of_each(social: Social) -> None:
    """Create a user with one item of each kind."""
    zoe = await social.create_user("zoe", "model")
    for i in range(4):
        await social.post(await social.create_user(f"o{i}"), "#tea")
    own_post = await social.post(zoe, "#own")
    other_post = (await social.feeds.user_posts(None, "o0", Page())).items[0].post
    for act in (social.engagements.like, social.engagements.bookmark):
        await act(zoe, own_post.id)
        await act(zoe, other_post.id)
    await social.comments.create(zoe, other_post.id, NewComment("hi"))
    await social.relations.follow(zoe, "o0")
    await social.relations.follow(Actor("o0", "user"), "zoe")
    await social.relations.mute(zoe, "o1")
    await social.relations.block(zoe, "o1")
    await social.relations.mute(Actor("o2", "user"), "zoe")
    await social.relations.block(Actor("o3", "user"), "zoe")


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_renaming_killed_at_any_step_continues_to_the_same_result(
    social: Social, assert_consistent: Any, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Rename one user repeatedly, each time killed one step later, before or after the step."""
    await create_user_with_one_of_each(social)
    expected, name, step, killed = without_ignored_keys(await assert_consistent()), "zoe", 0, True
    while killed:
        new = f"zoe{step}"
        with monkeypatch.context() as patch:
            patch.setattr(social.functions, "run", fail_from_step(social.functions.run, step, when))
            killed = await is_killed(renaming(social).rename(name, new))
        await social.valkey.call("DEL", LEASE("social.renaming"))  # it would expire after 30 seconds
        if killed and not await social.jobs.renaming.resume():
            # The renaming was killed before its first write or after its last one.
            with contextlib.suppress(NotFound):
                await renaming(social).rename(name, new)
        expected, name, step = with_new_name(expected, name, new), new, step + 1
        assert without_ignored_keys(await assert_consistent()) == expected, f"killed {when} step {step}"
    assert step > 25


async def is_killed(work: Awaitable[Any]) -> bool:
    try:
        await work
    except ConnectionError:
        return True
    return False


async def test_both_names_are_reserved_during_a_renaming(
    social: Social, ana: Actor, bob: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    await social.post(ana)
    with monkeypatch.context() as patch:
        patch.setattr(social.functions, "run", fail_from_step(social.functions.run, 7, "before"))
        assert await is_killed(renaming(social).rename("ana", "anna"))
    await social.valkey.call("DEL", LEASE("social.renaming"))
    for name in ("ana", "anna"):
        with pytest.raises(UsernameTaken):
            await social.accounts.register(Registration(username=name, password="correct horse"))
        (result,) = await social.sync.apply("user", [{"username": name, "bio": "mine"}])
        assert result.status == "error"
        with pytest.raises(Conflict):
            await social.deletion.delete(ADMIN, name)
    with pytest.raises(Conflict):
        await renaming(social).rename("ana", "another")
    with pytest.raises(Conflict):
        await renaming(social).rename("bob", "anna")
    assert await social.jobs.renaming.resume() == 1
    assert (await social.users.get(None, "anna")).display_name == "Ana"


async def test_a_taken_invalid_or_unknown_name_changes_nothing(
    social: Social, ana: Actor, bob: Actor, assert_consistent: Any
) -> None:
    before = without_ignored_keys(await assert_consistent())
    for old, new, refused in (
        ("ana", "bob", UsernameTaken),
        ("missing", "other", NotFound),
        ("ana", "ana", Invalid),
        ("ana", "me", Invalid),
        ("ana", "a:b", Invalid),
    ):
        with pytest.raises(refused):
            await renaming(social).rename(old, new)
    assert without_ignored_keys(await assert_consistent()) == before
    assert (await social.relations.follow(ana, "bob")).changed, "ana is not locked"


async def test_writes_to_the_old_name_during_a_renaming_are_not_lost(social: Social, assert_consistent: Any) -> None:
    """Users follow, like and comment during the renaming; every acknowledged write is found at the new name."""
    zoe = await social.create_user("zoe")
    post = await social.post(zoe, "#own")
    fans = [await social.create_user(f"fan{i}") for i in range(60)]

    async def like_and_follow(fan: Actor) -> bool:
        await social.engagements.like(fan, post.id)
        try:
            await social.relations.follow(fan, "zoe")
        except NotFound:
            return False  # the old name no longer exists, and the caller knows it
        return True

    followed, _ = await asyncio.gather(
        asyncio.gather(*(like_and_follow(fan) for fan in fans)), renaming(social).rename("zoe", "zara")
    )
    keyspace = await assert_consistent()
    assert {fan.name for fan, done in zip(fans, followed, strict=True) if done} == keyspace["user_followers"].get(
        ("zara",), set()
    )
    assert keyspace["post_likes"][(post.id,)] == {fan.name for fan in fans}


async def test_a_comment_deleted_during_the_renaming_of_its_author_is_gone(
    social: Social, assert_consistent: Any, ana: Actor
) -> None:
    post = await social.post(ana, "#own")
    zoe = await social.create_user("zoe")
    comment = await social.comments.create(zoe, post.id, NewComment("well"))
    await renaming(social).rename("zoe", "zara")
    await social.comments.remove(comment.id, post.id, "zoe")  # the caller read the comment before the renaming
    keyspace = await assert_consistent()
    assert not keyspace["comment"]
    assert not keyspace["user_comments"]


async def test_concurrent_writes_to_both_names_leave_consistent_data(
    social: Social, assert_consistent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old profile wins. Posts copy it although they have later versions of the new profile."""
    zoe = await social.create_user("zoe")
    post = await social.post(zoe, "#own")
    await social.users.suspend(ADMIN, "zoe", on=True)

    async def write_to_both_names(old: str) -> None:
        await social.users.suspend(ADMIN, "zoe", on=False)
        await social.users.update_profile(zoe, "zoe", Profile(display_name="Zoe"))
        for name in ("Z", "Zara"):
            await social.users.update_profile(Actor("zara", "user"), "zara", Profile(display_name=name))
        await social.functions.run("social_rename_post", [POST(post.id)], post.id, "zoe", "zara")
        await social.jobs.restyle()

    monkeypatch.setattr(renaming(social), "_settle_writes", write_to_both_names)
    await renaming(social).rename("zoe", "zara")
    await social.jobs.restyle()
    keyspace = await assert_consistent()
    profile = keyspace["user"][("zara",)]
    assert "suspended_at" not in profile
    assert (profile["display_name"], keyspace["post"][(post.id,)]["display_name"]) == ("Zoe", "Zoe")
