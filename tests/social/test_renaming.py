"""A person takes another name: everything goes along, whatever happens on the way."""

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
from tests.social.consistency import Facts
from tests.social.killed_process import dying
from tests.social.user_histories import busy_life, bystanders

# What a renaming itself leaves, what does not outlive a sign-in, and a queue of work that turns out to be done.
OWN = ("token_cutoffs", "lease", "fence", "tmp_home", "tmp_home_state", "users_restyle", "feeds_drop")


def renaming(social: Social) -> AccountRenaming:
    found: AccountRenaming = social.parts[AccountRenaming]
    return found


def as_if(thing: Any, old: str, new: str) -> Any:
    """The same, had the person always had the other name."""
    if isinstance(thing, dict):
        return {as_if(key, old, new): as_if(value, old, new) for key, value in thing.items()}
    if isinstance(thing, (tuple, list, set)):
        return type(thing)(as_if(part, old, new) for part in thing)
    return new if thing == old else thing


def lasting(facts: Facts) -> Facts:
    kept = {family: members for family, members in facts.items() if family not in OWN}
    kept["auth_user"] = {
        parts: {field: value for field, value in fields.items() if not field.startswith("family:")}
        for parts, fields in facts["auth_user"].items()
    }
    return kept


async def eventful(social: Social) -> Actor:
    """A user who has used every feature, also as an admin, and in unusual ways."""
    await bystanders(social)
    zoe = await busy_life(social, "zoe")
    mine = await social.post(zoe, "#own")
    for act in (social.engagements.like, social.engagements.bookmark):
        await act(zoe, mine.id)
    await social.comments.create(zoe, mine.id, NewComment("my own"))
    await social.relations.mute(zoe, "o4")
    await social.relations.block(zoe, "o4")  # muted before
    theirs = await social.post(Actor("o5", "model"), "#tea")
    await social.engagements.bookmark(zoe, theirs.id)
    await social.posts.ban(Actor("zoe", "admin"), theirs.id, on=True)
    await social.users.suspend(Actor("zoe", "admin"), "o5", on=True)
    await social.users.set_role(ADMIN, "zoe", "model")
    await social.jobs.restyle()
    return zoe


async def test_a_renaming_moves_everything_to_the_new_name(
    social: Social, assert_consistent: Any, http: httpx.AsyncClient
) -> None:
    zoe = await eventful(social)
    before, token = await assert_consistent(), social.token(zoe)
    assert await renaming(social).rename("zoe", "zara") > 0
    after = await assert_consistent()
    assert lasting(after) == as_if(lasting(before), "zoe", "zara")
    assert (await http.get("/whoami", headers=token)).status_code == 401
    with pytest.raises(WrongPassword):
        await social.accounts.login(PasswordLogin("zoe", "correct horse"))
    assert (await social.accounts.login(PasswordLogin("zara", "correct horse"))).user.username == "zara"
    assert await social.accounts.register(Registration(username="zoe", password="another one")), "the old name is free"


async def small_life(social: Social) -> None:
    """One of each."""
    zoe = await social.create_user("zoe", "model")
    for i in range(4):
        await social.post(await social.create_user(f"o{i}"), "#tea")
    mine, (theirs, *_) = await social.post(zoe, "#own"), (await social.feeds.user_posts(None, "o0", Page())).items
    for act in (social.engagements.like, social.engagements.bookmark):
        await act(zoe, mine.id)
        await act(zoe, theirs.post.id)
    await social.comments.create(zoe, theirs.post.id, NewComment("hi"))
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
    """The same life goes through many names, killed one step later each time, before or after the step."""
    await small_life(social)
    wanted, name, step, died = lasting(await assert_consistent()), "zoe", 0, True
    while died:
        new = f"zoe{step}"
        with monkeypatch.context() as patch:
            patch.setattr(social.functions, "run", dying(social.functions.run, step, when))
            died = await broken_off(renaming(social).rename(name, new))
        await social.valkey.call("DEL", LEASE("social.renaming"))  # it runs out by itself, in half a minute
        if died and not await social.jobs.renaming.resume():
            # Killed before it began, or when all was done.
            with contextlib.suppress(NotFound):
                await renaming(social).rename(name, new)
        wanted, name, step = as_if(wanted, name, new), new, step + 1
        assert lasting(await assert_consistent()) == wanted, f"killed {when} step {step}"
    assert step > 25


async def broken_off(work: Awaitable[Any]) -> bool:
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
        patch.setattr(social.functions, "run", dying(social.functions.run, 7, "before"))
        assert await broken_off(renaming(social).rename("ana", "anna"))
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
    before = lasting(await assert_consistent())
    for old, new, refused in (
        ("ana", "bob", UsernameTaken),
        ("missing", "other", NotFound),
        ("ana", "ana", Invalid),
        ("ana", "me", Invalid),
        ("ana", "a:b", Invalid),
    ):
        with pytest.raises(refused):
            await renaming(social).rename(old, new)
    assert lasting(await assert_consistent()) == before
    assert (await social.relations.follow(ana, "bob")).changed, "ana is as free as before"


async def test_writes_to_the_old_name_during_a_renaming_are_not_lost(social: Social, assert_consistent: Any) -> None:
    """Users follow, like and comment during the renaming; every acknowledged write is found at the new name."""
    zoe = await social.create_user("zoe")
    post = await social.post(zoe, "#own")
    fans = [await social.create_user(f"fan{i}") for i in range(60)]

    async def meet(fan: Actor) -> bool:
        await social.engagements.like(fan, post.id)
        try:
            await social.relations.follow(fan, "zoe")
        except NotFound:
            return False  # said so: the name is gone
        return True

    met, _ = await asyncio.gather(asyncio.gather(*(meet(fan) for fan in fans)), renaming(social).rename("zoe", "zara"))
    facts = await assert_consistent()
    assert {fan.name for fan, yes in zip(fans, met, strict=True) if yes} == facts["user_followers"].get(
        ("zara",), set()
    )
    assert facts["post_likes"][(post.id,)] == {fan.name for fan in fans}


async def test_a_comment_deleted_during_the_renaming_of_its_author_is_gone(
    social: Social, assert_consistent: Any, ana: Actor
) -> None:
    post = await social.post(ana, "#own")
    zoe = await social.create_user("zoe")
    comment = await social.comments.create(zoe, post.id, NewComment("well"))
    await renaming(social).rename("zoe", "zara")
    await social.comments.remove(comment.id, post.id, "zoe")  # as it was when they looked
    facts = await assert_consistent()
    assert not facts["comment"]
    assert not facts["user_comments"]


async def test_concurrent_writes_to_both_names_leave_consistent_data(
    social: Social, assert_consistent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old profile has the last word; posts follow it although they have copied later versions of the new one."""
    zoe = await social.create_user("zoe")
    post = await social.post(zoe, "#own")
    await social.users.suspend(ADMIN, "zoe", on=True)

    async def interfere(old: str) -> None:
        await social.users.suspend(ADMIN, "zoe", on=False)
        await social.users.update_profile(zoe, "zoe", Profile(display_name="Zoe"))
        for name in ("Z", "Zara"):
            await social.users.update_profile(Actor("zara", "user"), "zara", Profile(display_name=name))
        await social.functions.run("social_rename_post", [POST(post.id)], post.id, "zoe", "zara")
        await social.jobs.restyle()

    monkeypatch.setattr(renaming(social), "_settle_writes", interfere)
    await renaming(social).rename("zoe", "zara")
    await social.jobs.restyle()
    facts = await assert_consistent()
    profile = facts["user"][("zara",)]
    assert "suspended_at" not in profile
    assert (profile["display_name"], facts["post"][(post.id,)]["display_name"]) == ("Zoe", "Zoe")
