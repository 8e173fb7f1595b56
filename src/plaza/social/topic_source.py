"""What social tells open pages and feed streams: new posts, and the counts of posts that change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from plaza.core.auth import Actor
from plaza.core.clock import Clock
from plaza.core.events import Event
from plaza.core.number_parsing import parse_int
from plaza.core.paging import Page
from plaza.core.sequences import chunks
from plaza.core.topics import TopicMessage, WatchedTopics, spread_ms
from plaza.social.events import (
    CommentCreated,
    CommentDeleted,
    PostBanned,
    PostCreated,
    PostDeleted,
    PostLiked,
    PostUnbanned,
    PostUnliked,
)
from plaza.social.feeds import Feeds
from plaza.social.home_feed import HomeFeed
from plaza.social.keys import EXPLORE_FEED, POST, USER_FOLLOWERS
from plaza.social.read_view import ReadView

# Posts that one message names at most, the newest.
MAX_NEW_POSTS: Final = 100
# An imported post is new if it was created so recently.
NEW_MS: Final = 600_000
# A post shows in the feeds a moment after its creation, and clocks differ: a reconnecting listener gets posts again.
OVERLAP_MS: Final = 2_000
# How far back a reconnecting listener is told about new posts.
MAX_MISSED_MS: Final = 86_400_000
# Names that one command checks.
NAMES_PER_COMMAND: Final = 1_000

NEW_POST: Final = "new:"


class PostTopics:
    """The topics `explore`, `following` (of a user) and `post:<id>`."""

    kinds = ("explore", "following", "post:")
    event_types = tuple(
        kind.type
        for kind in (
            PostCreated,
            PostDeleted,
            PostBanned,
            PostUnbanned,
            PostLiked,
            PostUnliked,
            CommentCreated,
            CommentDeleted,
        )
    )

    def __init__(self, feeds: Feeds, home: HomeFeed, clock: Clock) -> None:
        self._feeds = feeds
        self._valkey = feeds.valkey
        self._home = home
        self._clock = clock

    def listen(self, note: Callable[[str], None]) -> None:
        """Events tell all changes."""

    def changes(self, event: Event, watched: WatchedTopics) -> Iterable[str]:
        post = event.data["post"]
        if event.type == PostCreated.type:
            is_watched = watched.of_kind("explore") or watched.of_kind("following")
            return [NEW_POST + post] if is_watched and event.origin != "rename" else []
        topic = "post:" + post
        return [topic] if watched.listeners(topic) else []

    async def resolve(self, viewer: Actor | None, names: Sequence[str]) -> list[str]:
        """Two round trips if posts are named, else none."""
        posts = [name.removeprefix("post:") for name in names if name.startswith("post:")]
        visible = await self._feeds.reader.visible(ReadView(viewer, feed=False), posts) if posts else []
        topics = [f"post:{id}" for id, is_visible in zip(posts, visible, strict=True) if is_visible]
        if "explore" in names:
            topics.append("explore")
        if "following" in names and viewer is not None:
            topics.append(f"following:{viewer.name}")
        return topics

    async def current(self, viewer: Actor | None, topics: Sequence[str], since_ms: int) -> list[TopicMessage]:
        """One round trip for counts, and two for each feed."""
        found = await self._count_messages([topic for topic in topics if topic.startswith("post:")], None)
        since_ms = max(since_ms - OVERLAP_MS, self._clock.now_ms() - MAX_MISSED_MS)
        if "explore" in topics:
            found += _feed_message("explore", await self._missed(viewer, since_ms))
        if viewer is not None and f"following:{viewer.name}" in topics:
            page = await self._home.page(viewer, Page(), users=False)
            missed = [(item.post.user_id, item.post.id) for item in page.items if item.post.created_at > since_ms]
            found += _feed_message(f"following:{viewer.name}", missed)
        return found

    async def _missed(self, viewer: Actor | None, since_ms: int) -> list[tuple[str, str]]:
        """Return the newest posts since a time that a viewer can see, with an empty author: nothing is left to hide."""
        limit = ("LIMIT", 0, MAX_NEW_POSTS)
        ids = await self._valkey.call("ZRANGE", EXPLORE_FEED(), "+inf", f"({since_ms}", "BYSCORE", "REV", *limit)
        visible = await self._feeds.reader.visible(ReadView(viewer), ids) if ids else []
        return [("", id) for id, is_visible in zip(ids, visible, strict=True) if is_visible]

    async def messages(self, changes: Sequence[str], watched: WatchedTopics) -> list[TopicMessage]:
        """One round trip for counts and one for new posts; with following feeds, one more for each thousand."""
        new = [change.removeprefix(NEW_POST) for change in changes if change.startswith(NEW_POST)][-MAX_NEW_POSTS:]
        found = await self._count_messages([change for change in changes if change.startswith("post:")], watched)
        posts = await self._new_posts(new)
        if posts and watched.listeners("explore"):
            found += _feed_message("explore", posts)
        if posts and (following := watched.of_kind("following")):
            found += await self._following_messages(posts, following)
        return found

    async def _new_posts(self, ids: Sequence[str]) -> list[tuple[str, str]]:
        """Return posts with their authors, newest first, if they are shown and new. An import may bring old ones."""
        if not ids:
            return []
        after = self._clock.now_ms() - NEW_MS
        rows = await self._read_posts(ids, ("user_id", "banned", "created_at"))
        return [
            (author, id)
            for id, (author, banned, created) in zip(reversed(ids), reversed(rows), strict=True)
            if author is not None and banned is None and parse_int(created) >= after
        ]

    async def _read_posts(self, ids: Sequence[str], fields: Sequence[str]) -> list[list[str | None]]:
        """Return fields of posts. A key of a wrong type counts as missing."""
        commands = [("HMGET", POST(id), *fields) for id in ids]
        rows = await self._valkey.batch(commands, return_errors=True) if ids else []
        return [[None] * len(fields) if isinstance(row, Exception) else row for row in rows]

    async def _following_messages(self, posts: Sequence[tuple[str, str]], topics: Iterable[str]) -> list[TopicMessage]:
        names = [topic.removeprefix("following:") for topic in topics]
        authors = list(dict.fromkeys(author for author, _ in posts))
        followed: dict[str, set[str]] = defaultdict(set)  # by follower
        for some in chunks(names, NAMES_PER_COMMAND):
            found = await self._valkey.batch([("SMISMEMBER", USER_FOLLOWERS(author), *some) for author in authors])
            for author, flags in zip(authors, found, strict=True):
                for name, follows in zip(some, flags, strict=True):
                    if follows:
                        followed[name].add(author)
        messages: list[TopicMessage] = []
        for name, by in followed.items():
            messages += _feed_message(f"following:{name}", [post for post in posts if post[0] in by])
        return messages

    async def _count_messages(self, topics: Sequence[str], watched: WatchedTopics | None) -> list[TopicMessage]:
        ids = [topic.removeprefix("post:") for topic in topics]
        fields = ("user_id", "banned", "likesCount", "commentsCount")
        rows = await self._read_posts(ids, fields)
        return [_count_message(topic, row, watched) for topic, row in zip(topics, rows, strict=True)]


def _feed_message(topic: str, posts: Sequence[tuple[str, str]]) -> list[TopicMessage]:
    def body(ids: list[str]) -> Mapping[str, Any]:
        return {"topic": topic.partition(":")[0], "posts": ids}

    return [TopicMessage(topic, posts, body)] if posts else []


def _count_message(topic: str, row: Sequence[str | None], watched: WatchedTopics | None) -> TopicMessage:
    author, banned, likes, comments = row
    counts: dict[str, Any] = {"topic": topic}
    if author is None or banned is not None:
        counts["gone"] = True
    else:
        counts |= {"likes": parse_int(likes), "comments": parse_int(comments), "spread_ms": spread_ms(watched, topic)}
    return TopicMessage(topic, [(author or "", counts)], lambda entries: entries[0])
