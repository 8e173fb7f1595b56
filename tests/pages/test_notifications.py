"""The bell, the page of notifications and its settings, without JavaScript."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import pytest

from plaza.app import Plaza
from plaza.core.auth import Actor
from plaza.core.notification_source import NOTIFICATION_TYPES
from plaza.social.engagements import Engagements
from plaza.social.model import NewPost
from plaza.social.posts import Posts
from plaza.social.relations import Relations
from tests.pages.conftest import PageClient
from tests.waiting import eventually


@pytest.fixture
async def working(plaza: Plaza) -> AsyncIterator[None]:
    worker = asyncio.create_task(plaza.worker.run())
    yield
    worker.cancel()
    await asyncio.wait([worker])


def bell(html: str) -> str | None:
    """The number beside the bell; None if it is hidden."""
    found = re.search(r'id="bell-count"( hidden)?><span>(\d+|99\+)<', html)
    assert found, html
    return None if found[1] else found[2]


async def test_the_bell_leads_to_sentences_that_are_read_and_dismissed(
    plaza: Plaza, ana: PageClient, url: str, working: None
) -> None:
    async with PageClient(url) as ben:
        await ben.sign_up("ben")
    assert bell((await ana.get("/app")).text) is None
    post = await plaza.get(Posts).create(Actor("ana", "user"), NewPost("Morning <light>"))
    await plaza.get(Engagements).like(Actor("ben", "user"), post.id)
    await plaza.get(Relations).follow(Actor("ben", "user"), "ana")

    async def bell_shows_both() -> bool:
        return bell((await ana.get("/app")).text) == "2"

    await eventually(bell_shows_both)
    page = (await ana.get("/app/notifications")).text
    assert '<a href="/app/people/ben"><b><bdi>ben</bdi></b></a> followed you' in page
    assert "</a> liked your post" in page
    assert f'<a href="/app/posts/{post.id}" dir="auto">Morning &lt;light&gt;</a>' in page
    await ana.submit("/app/notifications/read", page="/app/notifications", id="follow:user:1")
    assert bell((await ana.get("/app")).text) == "1"
    unread = (await ana.get("/app/notifications?filter=unread")).text
    assert "followed you" not in unread
    assert "liked your post" in unread
    (newest,) = re.findall(r'name="before" value="(\d+)"', unread)
    await ana.submit("/app/notifications/read", page="/app/notifications", before=newest)
    assert bell((await ana.get("/app")).text) is None
    await ana.submit("/app/notifications/dismiss", page="/app/notifications", id="follow:user:1")
    await ana.submit("/app/notifications/dismiss", page="/app/notifications", id="follow:user:1")
    page = (await ana.get("/app/notifications")).text
    assert "followed you" not in page
    assert "liked your post" in page


async def test_types_are_turned_off_and_on(ana: PageClient) -> None:
    settings = "/app/notifications/settings"
    assert (await ana.get(settings)).text.count(" checked>") == len(NOTIFICATION_TYPES)
    await ana.submit(settings, page=settings, like="1", follow="1")
    page = (await ana.get(settings)).text
    assert re.findall(r'name="(\w+)" value="1" checked>', page) == ["like", "follow"]
