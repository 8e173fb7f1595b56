"""Atom feeds over HTTP: valid, revalidated by ETag, linked from pages, and without what guests may not see."""

from __future__ import annotations

import re

import pytest

from plaza.app import Plaza
from plaza.core.auth import API
from plaza.social.posts import Posts
from tests.core.test_atom import ATOM, assert_valid_feed
from tests.pages.conftest import PageClient

PAGES = {
    "/app/people/ana": "/users/ana.atom",
    "/app/tags/tea": "/tags/tea.atom",
    "/app/articles": "/articles.atom",
    "/app/groups/news": "/groups/news.atom",
}


@pytest.fixture
async def content(ana: PageClient) -> str:
    """A post and an article of ana. Returns the post's path."""
    article = {"title": "Streams & more", "link": "https://example.org/streams", "groups": "news"}
    await ana.submit("/app/articles", page="/app/articles/new", **article)
    return (await ana.submit("/app/posts", content="Green <tea> #tea", next="")).headers["location"]


async def test_every_feed_is_linked_valid_and_revalidated(guest: PageClient, content: str) -> None:
    for page, feed in PAGES.items():
        html = (await guest.get(page)).text
        (linked,) = re.findall(r'<link rel="alternate" type="application/atom\+xml"[^>]* href="([^"]*)">', html)
        assert linked.partition("?")[0] == feed
        response = await guest.get(linked)
        assert response.headers["content-type"].startswith("application/atom+xml")
        assert len(assert_valid_feed(response.content)) == 1, feed
        same = await guest.get(linked, headers={"if-none-match": response.headers["etag"]})
        assert (same.status_code, same.content) == (304, b"")
        other = await guest.get(linked, headers={"if-none-match": '"other"'})
        assert other.status_code == 200


async def test_a_feed_changes_with_its_list_and_hides_what_is_banned(
    plaza: Plaza, ana: PageClient, guest: PageClient, content: str
) -> None:
    first = await guest.get("/tags/tea.atom")
    assert assert_valid_feed(first.content)[0].findtext(f"{ATOM}content") == "Green <tea> #tea"
    await ana.submit("/app/posts", content="Black #tea", next="")
    second = await guest.get("/tags/tea.atom", headers={"if-none-match": first.headers["etag"]})
    assert len(assert_valid_feed(second.content)) == 2
    await plaza.get(Posts).ban(API, content.rpartition("/")[2], on=True)
    assert len(assert_valid_feed((await guest.get("/users/ana.atom")).content)) == 1


async def test_unknown_users_orders_and_the_user_behind_the_suffix(guest: PageClient, ana: PageClient) -> None:
    assert (await guest.get("/users/missing.atom")).status_code == 404
    assert (await guest.get("/articles.atom?order=wrong")).status_code == 422
    assert (await guest.get("/users/ana")).json()["username"] == "ana"
    # A username may end in `.atom`: encoded, it is read as a username.
    assert (await guest.get("/users/ana%2Eatom")).status_code == 404
