"""What one does about other people and about what one has said: keep them away, find one's words, change them."""

from __future__ import annotations

import re
from urllib.parse import urljoin

import pytest

from plaza.app import Plaza
from plaza.core.auth import API, Actor
from plaza.social.comments import Comments
from plaza.social.model import NewComment, NewPost
from plaza.social.posts import Posts
from plaza.social.relations import Relations
from plaza.social.users import Users
from tests.pages.conftest import Surfer
from tests.servers import Server


@pytest.fixture
async def bob(plaza: Plaza, url: str, ana: Surfer) -> None:
    """Whom ana follows, and who has said something."""
    async with Surfer(url) as bob:
        await bob.sign_up("bob")
    await plaza.get(Relations).follow(Actor("ana", "user"), "bob")
    await plaza.get(Posts).create(Actor("bob", "user"), NewPost("I am bob"))


@pytest.mark.usefixtures("bob")
async def test_whom_one_blocks_is_gone_and_can_be_found_to_be_unblocked(ana: Surfer, server: Server) -> None:
    sent = await ana.fill("/app/people/bob/block", page="/app/people/bob", on="1")
    assert sent.headers["location"] == "/app/blocked", "and not to the page that is gone"
    with server.redis_client() as redis_client:
        assert redis_client.zscore("user:ana:blocked", "bob")
        assert not redis_client.sismember("user:ana:following", "bob")
    assert "I am bob" not in (await ana.get("/app")).text
    page = (await ana.get("/app/people/bob")).text
    assert "You block this person." in page
    assert "I am bob" not in page
    assert 'id="block-bob"' in (await ana.get("/app/blocked")).text
    assert 'id="block-bob"' not in (await ana.get("/app/muted")).text
    sent = await ana.fill("/app/people/bob/block", page="/app/people/bob", on="0")
    assert sent.headers["location"] == "/app/people/bob"
    assert "I am bob" in (await ana.get("/app/people/bob")).text
    assert "Nobody." in (await ana.get("/app/blocked")).text


@pytest.mark.usefixtures("bob")
async def test_whom_one_mutes_one_sees_when_one_looks(ana: Surfer, server: Server) -> None:
    form = {**await ana.form("/app/people/bob"), "on": "1"}
    piece = await ana.post("/app/people/bob/mute", data=form, headers={"x-fragment": "1"})
    assert 'id="muting"' in piece.text
    assert 'id="mute-bob"' in piece.text, "for the page that lists them"
    with server.redis_client() as redis_client:
        assert redis_client.zscore("user:ana:muted", "bob")
    assert "I am bob" not in (await ana.get("/app/following")).text
    assert "I am bob" in (await ana.get("/app/people/bob")).text
    assert 'id="mute-bob"' in (await ana.get("/app/muted")).text
    assert (await ana.post("/app/people/bob/mute", data={**form, "on": "0"})).status_code == 303
    assert "I am bob" in (await ana.get("/app/following")).text


@pytest.mark.usefixtures("bob")
async def test_nobody_learns_who_blocks_them(plaza: Plaza, ana: Surfer) -> None:
    await plaza.get(Relations).block(Actor("bob", "user"), "ana")
    blocked, nobody = await ana.get("/app/people/bob"), await ana.get("/app/people/nobody")
    assert blocked.status_code == nobody.status_code == 404
    for about in ("blocked", "muted"):
        assert "bob" not in (await ana.get(f"/app/{about}")).text


async def test_only_its_author_edits_a_post_and_what_is_refused_is_not_lost(
    plaza: Plaza, ana: Surfer, guest: Surfer
) -> None:
    theirs = await plaza.get(Posts).create(Actor("ana", "user"), NewPost("First words #one"))
    path = f"/app/posts/{theirs.id}/edit"
    assert "First words #one</textarea>" in (await ana.get(path)).text
    refused = await ana.fill(path, page=path, content=" ")
    assert refused.status_code == 422
    assert 'role="alert"' in refused.text
    assert (await ana.fill(path, page=path, content="Other <words> #two")).headers["location"] == path[: -len("/edit")]
    page = (await ana.get(f"/app/posts/{theirs.id}")).text
    assert "Other &lt;words&gt;" in page
    assert "· edited" in page
    assert (await ana.get("/app/tags/one")).text.count("<article") == 0
    assert path in page
    await guest.sign_up("eve")
    assert path not in (await guest.get(f"/app/posts/{theirs.id}")).text
    assert (await guest.get(path)).status_code == 403
    assert (await guest.fill(path, content="Mine now")).status_code == 403


async def test_who_comments_below_many_comments_is_shown_their_own(plaza: Plaza, ana: Surfer) -> None:
    actor = Actor("ana", "user")
    post = (await plaza.get(Posts).create(actor, NewPost("Go on"))).id
    for number in range(20):
        await plaza.get(Comments).create(actor, post, NewComment(f"Number {number}"))
    path = f"/app/posts/{post}"
    sent = (await ana.fill(f"{path}/comments", page=path, next="", content="The last")).headers["location"]
    page = (await ana.get(sent)).text
    assert f'id="{sent.rpartition("#")[2]}"' in page
    assert re.findall(r'class="text" dir="auto">([^<]*)<', page) == ["Go on", "The last"]
    assert f'<a href="{path}#comments">From the first comment</a>' in page


@pytest.mark.usefixtures("bob")
async def test_admins_ban_posts_and_suspend_people_and_nobody_else_does(
    plaza: Plaza, ana: Surfer, guest: Surfer, url: str
) -> None:
    post = (await plaza.get(Posts).create(Actor("bob", "user"), NewPost("Buy my pills"))).id
    ban, suspend = f"/app/posts/{post}/ban", "/app/people/bob/suspend"
    for path, page in ((ban, f"/app/posts/{post}"), (suspend, "/app/people/bob")):
        assert path not in (await ana.get(page)).text
        assert (await ana.fill(path, page=page, on="1")).status_code == 403
    await plaza.get(Users).set_role(API, "ana", "admin")
    assert ban in (await ana.get(f"/app/posts/{post}")).text
    assert (await ana.fill(ban, on="1")).status_code == 303
    assert (await guest.get(f"/app/posts/{post}")).status_code == 404
    assert "Banned by ana" in (await ana.get(f"/app/posts/{post}")).text
    assert (await ana.fill(ban, on="0")).status_code == 303
    assert "Buy my pills" in (await guest.get("/app")).text
    async with Surfer(url) as bob:
        known = {"username": "bob", "password": "correct horse"}
        await bob.fill("/app/sign-in", page="/app/sign-in", **known)
        form = {**await ana.form("/app"), "on": "1"}
        assert 'id="suspension"' in (await ana.post(suspend, data=form, headers={"x-fragment": "1"})).text
        assert "Sign out" not in (await bob.get("/app")).text
        assert "Lift the suspension" in (await ana.get("/app/people/bob")).text
        assert (await bob.fill("/app/sign-in", page="/app/sign-in", **known)).status_code == 422
        await ana.post(suspend, data={**form, "on": "0"})
        assert (await bob.fill("/app/sign-in", page="/app/sign-in", **known)).status_code == 303


@pytest.mark.parametrize("name", [".", ".."])
async def test_who_is_called_by_dots_alone_can_be_found_and_followed(ana: Surfer, guest: Surfer, name: str) -> None:
    await guest.sign_up(name)
    await guest.fill("/app/posts", content="Here I am")
    path = re.findall(r'class="face" href="([^"]*)"', (await ana.get("/app")).text)[0]
    assert urljoin("http://plaza/app/people", path) == f"http://plaza{path}", "where browsers go"
    assert "Here I am" in (await ana.get(path)).text
    followed = await ana.fill(f"{path}/follow", page=path, on="1")
    assert followed.headers["location"] == path
    assert "<b>1</b> follower<" in (await ana.get(path)).text
    assert f"@{name}" in (await ana.get("/app/people/ana/following")).text
