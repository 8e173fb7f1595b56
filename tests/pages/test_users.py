"""Blocking, muting, editing posts, and moderation by admins."""

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
from tests.pages.conftest import PageClient
from tests.servers import Server


@pytest.fixture
async def bob(plaza: Plaza, url: str, ana: PageClient) -> None:
    """A user with a post, followed by ana."""
    async with PageClient(url) as bob:
        await bob.sign_up("bob")
    await plaza.get(Relations).follow(Actor("ana", "user"), "bob")
    await plaza.get(Posts).create(Actor("bob", "user"), NewPost("I am bob"))


@pytest.mark.usefixtures("bob")
async def test_a_blocked_user_is_hidden_and_can_be_unblocked(ana: PageClient, server: Server) -> None:
    sent = await ana.submit("/app/people/bob/block", page="/app/people/bob", on="1")
    assert sent.headers["location"] == "/app/blocked", "not to the profile, which is hidden now"
    with server.redis_client() as redis_client:
        assert redis_client.zscore("user:ana:blocked", "bob")
        assert not redis_client.sismember("user:ana:following", "bob")
    assert "I am bob" not in (await ana.get("/app")).text
    page = (await ana.get("/app/people/bob")).text
    assert "You blocked this user." in page
    assert "I am bob" not in page
    assert 'id="block-bob"' in (await ana.get("/app/blocked")).text
    assert 'id="block-bob"' not in (await ana.get("/app/muted")).text
    sent = await ana.submit("/app/people/bob/block", page="/app/people/bob", on="0")
    assert sent.headers["location"] == "/app/people/bob"
    assert "I am bob" in (await ana.get("/app/people/bob")).text
    assert "No blocked users." in (await ana.get("/app/blocked")).text


@pytest.mark.usefixtures("bob")
async def test_a_muted_user_is_hidden_from_feeds_but_not_from_their_profile(ana: PageClient, server: Server) -> None:
    form = {**await ana.hidden_fields("/app/people/bob"), "on": "1"}
    fragment = await ana.post("/app/people/bob/mute", data=form, headers={"x-fragment": "1"})
    assert 'id="mute-button"' in fragment.text
    assert 'id="mute-bob"' in fragment.text, "the row on the list of muted users"
    with server.redis_client() as redis_client:
        assert redis_client.zscore("user:ana:muted", "bob")
    assert "I am bob" not in (await ana.get("/app/following")).text
    assert "I am bob" in (await ana.get("/app/people/bob")).text
    assert 'id="mute-bob"' in (await ana.get("/app/muted")).text
    assert (await ana.post("/app/people/bob/mute", data={**form, "on": "0"})).status_code == 303
    assert "I am bob" in (await ana.get("/app/following")).text


@pytest.mark.usefixtures("bob")
async def test_a_blocked_user_cannot_see_who_blocks_them(plaza: Plaza, ana: PageClient) -> None:
    await plaza.get(Relations).block(Actor("bob", "user"), "ana")
    blocked, missing = await ana.get("/app/people/bob"), await ana.get("/app/people/missing")
    assert blocked.status_code == missing.status_code == 404
    for page in ("blocked", "muted"):
        assert "bob" not in (await ana.get(f"/app/{page}")).text


async def test_only_the_author_edits_a_post_and_a_refused_text_is_shown_again(
    plaza: Plaza, ana: PageClient, guest: PageClient
) -> None:
    post = await plaza.get(Posts).create(Actor("ana", "user"), NewPost("First words #one"))
    path = f"/app/posts/{post.id}/edit"
    assert "First words #one</textarea>" in (await ana.get(path)).text
    refused = await ana.submit(path, page=path, content=" ")
    assert refused.status_code == 422
    assert 'role="alert"' in refused.text
    assert (await ana.submit(path, page=path, content="Other <words> #two")).headers["location"] == path[
        : -len("/edit")
    ]
    page = (await ana.get(f"/app/posts/{post.id}")).text
    assert "Other &lt;words&gt;" in page
    assert "· edited" in page
    assert (await ana.get("/app/tags/one")).text.count("<article") == 0
    assert path in page
    await guest.sign_up("eve")
    assert path not in (await guest.get(f"/app/posts/{post.id}")).text
    assert (await guest.get(path)).status_code == 403
    assert (await guest.submit(path, content="Mine now")).status_code == 403


async def test_a_new_comment_after_many_is_shown_to_its_author(plaza: Plaza, ana: PageClient) -> None:
    actor = Actor("ana", "user")
    post = (await plaza.get(Posts).create(actor, NewPost("Go on"))).id
    for number in range(20):
        await plaza.get(Comments).create(actor, post, NewComment(f"Number {number}"))
    path = f"/app/posts/{post}"
    sent = (await ana.submit(f"{path}/comments", page=path, next="", content="The last")).headers["location"]
    page = (await ana.get(sent)).text
    assert f'id="{sent.rpartition("#")[2]}"' in page
    assert re.findall(r'class="text" dir="auto">([^<]*)<', page) == ["Go on", "The last"]
    assert f'<a href="{path}#comments">Show first comments</a>' in page


@pytest.mark.usefixtures("bob")
async def test_only_admins_ban_posts_and_suspend_users(
    plaza: Plaza, ana: PageClient, guest: PageClient, url: str
) -> None:
    post = (await plaza.get(Posts).create(Actor("bob", "user"), NewPost("Buy my pills"))).id
    ban, suspend = f"/app/posts/{post}/ban", "/app/people/bob/suspend"
    for path, page in ((ban, f"/app/posts/{post}"), (suspend, "/app/people/bob")):
        assert path not in (await ana.get(page)).text
        assert (await ana.submit(path, page=page, on="1")).status_code == 403
    await plaza.get(Users).set_role(API, "ana", "admin")
    assert f'href="{ban}"' in (await ana.get(f"/app/posts/{post}")).text
    assert "you can unban it" in (await ana.get(ban)).text
    assert (await guest.get(f"/app/posts/{post}")).status_code == 200, "it only asked"
    assert (await ana.submit(ban, page=ban)).status_code == 303
    assert (await guest.get(f"/app/posts/{post}")).status_code == 404
    assert "Banned by ana" in (await ana.get(f"/app/posts/{post}")).text
    assert (await ana.submit(ban, on="0")).status_code == 303
    assert "Buy my pills" in (await guest.get("/app")).text
    delete = f"/app/posts/{post}/delete"
    assert f'href="{delete}"' in (await ana.get(f"/app/posts/{post}")).text
    assert (await guest.get(delete)).status_code == 303
    assert "This cannot be undone." in (await ana.get(delete)).text
    assert (await guest.get(f"/app/posts/{post}")).status_code == 200, "it only asked"
    assert (await ana.submit(delete, page=delete)).status_code == 303
    assert (await guest.get(f"/app/posts/{post}")).status_code == 404
    async with PageClient(url) as bob:
        credentials = {"username": "bob", "password": "correct horse"}
        await bob.submit("/app/sign-in", page="/app/sign-in", **credentials)
        assert f'href="{suspend}"' in (await ana.get("/app/people/bob")).text
        form = await ana.hidden_fields(suspend)
        assert 'id="suspend-button"' in (await ana.post(suspend, data=form, headers={"x-fragment": "1"})).text
        assert "Sign out" not in (await bob.get("/app")).text
        assert "Lift suspension" in (await ana.get("/app/people/bob")).text
        assert (await bob.submit("/app/sign-in", page="/app/sign-in", **credentials)).status_code == 422
        await ana.post(suspend, data={**form, "on": "0"})
        assert (await bob.submit("/app/sign-in", page="/app/sign-in", **credentials)).status_code == 303


@pytest.mark.parametrize("name", [".", ".."])
async def test_a_user_named_only_with_dots_can_be_followed(ana: PageClient, guest: PageClient, name: str) -> None:
    await guest.sign_up(name)
    await guest.submit("/app/posts", content="Here I am")
    path = re.findall(r'class="avatar-link" href="([^"]*)"', (await ana.get("/app")).text)[0]
    assert urljoin("http://plaza/app/people", path) == f"http://plaza{path}", "browsers must not resolve the dots"
    assert "Here I am" in (await ana.get(path)).text
    followed = await ana.submit(f"{path}/follow", page=path, on="1")
    assert followed.headers["location"] == path
    assert "<b>1</b> follower<" in (await ana.get(path)).text
    assert f"@{name}" in (await ana.get("/app/people/ana/following")).text
