"""Another service reads and writes the documented keys beside Plaza, with a plain Redis client."""

from __future__ import annotations

from typing import Any

import pytest

from plaza.core.auth import Actor
from plaza.core.paging import Page
from plaza.social import keys as k
from tests.social.conftest import Social


async def post(social: Social, author: Actor, text: str = "hello") -> str:
    """Create a post a second after the one before, and return its id."""
    social.clock.advance(seconds=1)
    return (await social.post(author, text)).id


async def home_ids(social: Social, viewer: Actor) -> list[str]:
    return [item.post.id for item in (await social.home.page(viewer, Page())).items]


async def test_the_home_feed_is_complete_after_another_service_deleted_it(
    social: Social, ana: Actor, bob: Actor, redis_client: Any
) -> None:
    await social.relations.follow(ana, "bob")
    posts = [await post(social, bob) for _ in range(3)]
    assert await home_ids(social, ana) == posts[::-1]
    await redis_client.delete(k.TMP_HOME("ana"))
    assert await home_ids(social, ana) == posts[::-1]
    assert await redis_client.zcard(k.TMP_HOME("ana")) == 3


async def test_the_home_feed_is_complete_after_another_service_rebuilt_it(
    social: Social, ana: Actor, bob: Actor, redis_client: Any
) -> None:
    cat = await social.person("cat")
    for name in ("bob", "cat"):
        await social.relations.follow(ana, name)
    first, second = await post(social, bob), await post(social, cat)
    assert await home_ids(social, ana) == [second, first]
    # As the document says: a union of the followed users' posts with a short TTL, here of one of them.
    posts = await redis_client.zrange(k.USER_POSTS("bob"), 0, -1, withscores=True)
    await redis_client.delete(k.TMP_HOME("ana"))
    await redis_client.zadd(k.TMP_HOME("ana"), dict(posts))
    await redis_client.expire(k.TMP_HOME("ana"), 60)
    third = await post(social, cat)
    await social.jobs.update_home_feeds()
    assert await redis_client.ttl(k.TMP_HOME("ana")) <= 60, "the other service's expiry stays"
    assert await home_ids(social, ana) == [third, second, first]


async def test_an_empty_home_feed_is_not_rebuilt_at_every_read(
    social: Social, ana: Actor, bob: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def build(*args: Any) -> Any:
        raise AssertionError("the feed is built again")

    await social.relations.follow(ana, "bob")
    assert await home_ids(social, ana) == []
    monkeypatch.setattr(social.home, "newest", build)
    assert await home_ids(social, ana) == []
    assert await home_ids(social, ana) == []
    new = await post(social, bob)
    assert await home_ids(social, ana) == [new]
