"""All pages on one server and on a cluster: a user performs every action, and every page opens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from plaza.app import Plaza
from plaza.live.heartbeats import LiveService
from plaza.live.model import EventDeclaration
from plaza.shop.items import Items
from plaza.shop.model import NewItem
from tests.http_servers import all_of_plaza, serving
from tests.pages.conftest import PageClient, ParsedPage
from tests.servers import Cluster, Server


@pytest.fixture
async def plaza(place: Server | Cluster, tmp_path: Path) -> AsyncIterator[Plaza]:
    async with all_of_plaza(place, tmp_path) as plaza:
        yield plaza


@pytest.fixture
async def url(plaza: Plaza) -> AsyncIterator[str]:
    async with serving(plaza.app) as url:
        yield url


async def test_every_form_and_every_page_works(ana: PageClient, url: str, plaza: Plaza) -> None:
    async with PageClient(url) as bob:
        await bob.sign_up("bob")
    item = (await plaza.get(Items).create(NewItem("Lamp", "Bright.", "9.00", 1), "one")).id
    await plaza.get(LiveService).declare("fair", EventDeclaration(title="The fair", sessions=["stage"]))
    created = await ana.post(
        "/app/posts", data={**await ana.hidden_fields("/app/sign-in"), "next": "", "content": "Hi #all"}
    )
    post = created.headers["location"]
    for path, fields in (
        (f"{post}/like", {"on": "1"}),
        (f"{post}/bookmark", {"on": "1"}),
        (f"{post}/comments", {"content": "Indeed."}),
        (f"{post}/edit", {"content": "Hi #all of you"}),
        ("/app/people/bob/follow", {"on": "1"}),
        ("/app/people/bob/mute", {"on": "1"}),
        ("/app/people/bob/block", {"on": "1"}),
        ("/app/people/bob/block", {"on": "0"}),
        ("/app/profile", {"display_name": "Ana", "bio": "Hello"}),
        ("/app/articles", {"title": "A link", "link": "https://example.org/", "groups": "news, sky"}),
        ("/app/articles/1/vote", {"direction": "down"}),
        ("/app/challenges", {"title": "Walk", "category": "1", "duration": "7", "unit": "km", "is_public": "1"}),
        ("/app/challenges/1/join", {"on": "1"}),
        ("/app/challenges/1/track", {"amount": "2.5"}),
        ("/app/challenges/1/posts", {"text": "Done."}),
        ("/app/challenges/posts/1/reaction", {"on": "1"}),
        ("/app/challenges/posts/1/comments", {"content": "Well done."}),
        ("/app/challenges/posts/1/comments", {"content": "Indeed.", "reply_to": "1"}),
        ("/app/challenges/posts/1/comments/1/edit", {"content": "x"}),
        ("/app/challenges/posts/1/comments/1/delete", {}),
        ("/app/challenges/posts/1/edit", {"text": "Done, really."}),
        ("/app/challenges/1/edit", {"title": "Walk on", "duration": "8", "unit": "km"}),
        (f"/app/shop/cart/{item}", {"qty": "1"}),
        ("/app/shop/checkout", {}),
    ):
        response = await ana.submit(path, page="/app/sign-in", **fields)
        assert response.status_code == 303, (path, response.text)
        page = await ana.get(response.headers["location"])
        assert page.status_code == 200, path
        assert "data-avatar" not in page.text, "the page was not completed: call `site.mentions.complete`"
    lists = [
        "",
        "/following",
        "/blocked",
        "/muted",
        "/account",
        "/bookmarks",
        "/tags/all",
        "/tags/all/ranked",
        "/articles/1",
        "/groups/news",
        "/challenges",
    ]
    orders = [f"/articles?order={order}" for order in ("score", "time", "hot", "best", "top", "controversial")]
    others = ["/people/bob", "/people/bob/followers", "/people/ana/following", "/challenges/1", "/challenges/for-you"]
    others += [
        "/challenges/invitations",
        "/challenges/1/invitations",
        "/challenges/1/edit",
        "/challenges/posts/1",
        "/challenges/posts/1?reply_to=2",
        "/challenges/posts/1/edit",
        "/challenges/1/days",
        "/challenges/1/leaderboard",
        "/challenges/1/leaderboard?by=streak",
    ]
    shop = ["/shop", "/shop/popular", "/shop/seen", f"/shop/items/{item}", "/shop/cart", "/shop/orders"]
    forms = ["/profile", "/articles/new", "/challenges/new", "/events", "/events/fair", "/sign-in", "/sign-up"]
    for path in (*lists, *orders, *others, *shop, *forms):
        response = await ana.get(f"/app{path}")
        assert response.status_code == 200, (path, response.text)
        assert "Sign out" in response.text, path
        assert '<form class="search-box" role="search"' in response.text, path
        assert "data-avatar" not in response.text, path
        times = [attributes for tag, attributes in ParsedPage(response.text).elements if tag == "time"]
        assert all(at["title"].endswith(" UTC") and at["datetime"].endswith("Z") for at in times), path
