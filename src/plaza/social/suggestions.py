"""What a reader may like: tags that many use now, and users that the followed ones follow too, or the top models."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from plaza.core.auth import Actor
from plaza.core.paging import Page
from plaza.social.feeds import Feeds
from plaza.social.keys import AUTH_USER, MODELS_TOP_ENGAGEMENT, USER_FOLLOWING, USER_MUTED
from plaza.social.model import User
from plaza.social.users import Users

# The latest posts that trending tags are counted in.
POSTS_COUNTED: Final = 100
# How many of a user's follows are looked at, and how many follows of each: at most 900 names.
FOLLOWS_READ: Final = 30
# Read beyond what is shown, because some may be hidden from the user.
SPARE_USERS: Final = 20


class TrendingTag(Struct, frozen=True):
    """A tag, and how many authors used it in the latest posts."""

    name: str
    authors: int


class SuggestedUser(Struct, frozen=True):
    """A user to follow, and how many followed users (of those that were looked at) follow them too.

    `mutual` is 0 for the top models, which are suggested if there are none.
    """

    user: User
    mutual: int


class SocialSuggestions:
    """Suggests tags and users."""

    def __init__(self, feeds: Feeds, users: Users) -> None:
        self._feeds = feeds
        self._users = users
        self._valkey = users.valkey

    async def trending_tags(self, count: int) -> list[TrendingTag]:
        """Return the tags that most authors used in the latest 100 posts, at least two. Two round trips."""
        latest = await self._feeds.explore(None, Page(limit=POSTS_COUNTED), users=False)
        used = {(tag, item.post.user_id) for item in latest.items for tag in item.post.hashtags}
        authors = Counter(tag for tag, _ in used)
        ranked = sorted(authors.items(), key=lambda pair: (-pair[1], pair[0]))
        return [TrendingTag(tag, number) for tag, number in ranked[:count] if number > 1]

    async def users_to_follow(self, actor: Actor, count: int) -> list[SuggestedUser]:
        """Return the users that most followed users follow too; if there are none, the top models.

        Never blocked, muted or suspended ones. Four round trips.
        """
        me = actor.name
        followed, top_models = await self._valkey.batch(
            [
                ("SRANDMEMBER", USER_FOLLOWING(me), FOLLOWS_READ),
                ("ZRANGE", MODELS_TOP_ENGAGEMENT(), 0, count + SPARE_USERS, "REV"),
            ]
        )
        mutual = await self._followed_by(followed)
        names = [name for name, _ in sorted(mutual.items(), key=lambda pair: (-pair[1], pair[0]))] or top_models
        names = [name for name in names if name != me]
        if not names:
            return []
        follows, muted = await self._valkey.batch(
            [("SMISMEMBER", USER_FOLLOWING(me), *names), ("ZMSCORE", USER_MUTED(me), *names)]
        )
        left = [name for name, on, score in zip(names, follows, muted, strict=True) if not on and score is None]
        left = left[: count + SPARE_USERS]
        profiles, suspended = await asyncio.gather(
            self._users.public_profiles(actor, left),
            self._valkey.batch([("HEXISTS", AUTH_USER(name), "suspended_at") for name in left]),
        )
        shown = [user for user, flag in zip(profiles, suspended, strict=True) if user is not None and not flag]
        return [SuggestedUser(user, mutual[user.username]) for user in shown[:count]]

    async def _followed_by(self, users: Sequence[str]) -> Counter[str]:
        """Return how many of the users follow each user. No round trip without users, else one."""
        if not users:
            return Counter()
        lists = await self._valkey.batch([("SRANDMEMBER", USER_FOLLOWING(name), FOLLOWS_READ) for name in users])
        return Counter(name for names in lists for name in names)
