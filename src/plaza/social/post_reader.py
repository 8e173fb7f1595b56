"""Reads posts for a viewer: with the viewer's flags, without posts that are hidden from the viewer.

Most pages show posts that other pages have just loaded, so on one server posts and profiles are cached in the process,
and Valkey's client tracking invalidates them. An invalidation arrives on the same connection as the ids of a list, and
before them: a list read after a change shows the change. What is not cached is read by one query that follows posts to
their authors, in the same round trip as the viewer's flags.

On a cluster a post's author is on another node. So nothing is cached, and a page takes a second batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from plaza.core.auth import Actor
from plaza.core.functions import Functions
from plaza.core.number_parsing import parse_int
from plaza.core.paging import Position, list_checksum
from plaza.core.sequences import chunks, pairs
from plaza.core.tracking_cache import TrackingCache
from plaza.core.valkey import Arg
from plaza.social.keys import (
    POST,
    POST_LIKES,
    USER,
    USER_BOOKMARKED,
    USER_FOLLOWING,
    USER_MUTED,
)
from plaza.social.model import POST_FIELDS, PUBLIC_FIELDS, FeedItem, Post, User, post_from_values, public_user
from plaza.social.users import hiding_keys

Command = tuple[Arg, ...]

# The longest post is 10 kB; most are a hundredth of that.
MAX_CACHED_POSTS: Final = 4_096
MAX_CACHED_PROFILES: Final = 8_192

# Reading this many uncached posts takes Valkey about 1.5 ms.
MAX_POSTS_PER_READ: Final = 100


@dataclass(slots=True)
class ReadView:
    """The viewer, and what kind of list is read."""

    viewer: Actor | None
    users: bool = True  # include the authors' public profiles
    feed: bool = True  # leave out muted users
    followed: bool = False  # only users that the viewer follows
    created_after: int = 0  # leave out posts that were created before this time, Unix milliseconds


class RankedRows(NamedTuple):
    """Ids with their scores, and the rank of the first."""

    rank: int
    rows: Sequence[tuple[str, float]]

    def positions(self, key: str) -> list[tuple[str, Position]]:
        name = list_checksum(key)
        return [(id, Position(name, score, id)) for id, score in self.rows]


class PostReader:
    def __init__(self, functions: Functions) -> None:
        self.functions = functions
        self.valkey = functions.valkey
        self.posts: TrackingCache[Post] = TrackingCache(functions.valkey, MAX_CACHED_POSTS)
        self.profiles: TrackingCache[User] = TrackingCache(functions.valkey, MAX_CACHED_PROFILES)

    async def items(self, view: ReadView, ids: Sequence[str], *, listed: bool = True) -> list[FeedItem | None]:
        """Return posts for a viewer, None for one that is deleted, banned or hidden.

        One round trip for each hundred, two on a cluster. Cached posts are used only if the ids were read from Valkey
        just now (`listed`): then invalidations have arrived.
        """
        found: list[FeedItem | None] = []
        for chunk in chunks(ids, MAX_POSTS_PER_READ):
            found += await self._read_posts(view, chunk, listed)
        return found

    async def _read_posts(self, view: ReadView, ids: Sequence[str], listed: bool) -> list[FeedItem | None]:
        if self.valkey.clustered:
            return await self._from_cluster(view, ids)
        loaded = self._cached(view, ids) if listed else LoadedPosts({}, {})
        names = loaded.authors()
        missing = [id for id in ids if id not in loaded.posts]
        missing_authors = [name for name in names if name not in loaded.profiles] if view.users else []
        commands = [
            *self._flag_queries(view, ids),
            *_relation_commands(view, names),
            *self._hidden_query(view, missing),
        ]
        if missing or missing_authors:
            replies = await self._load_missing(view, loaded, missing, missing_authors, commands)
        else:
            replies = await self.valkey.batch(commands) if commands else []
        hidden_flags = replies.pop() if view.viewer and missing else []
        hidden = {id for id, is_hidden in zip(missing, hidden_flags, strict=False) if is_hidden}
        return _items(view, ids, loaded, replies, hidden | _hidden(view, names, replies[2:]))

    async def visible(self, view: ReadView, ids: Sequence[str]) -> list[bool]:
        """Return which posts the viewer may see. Two round trips; much cheaper than `items`."""
        rows = await self.valkey.batch([("HMGET", POST(id), "user_id", "banned", "created_at") for id in ids])
        names = list(dict.fromkeys(author for author, _, _ in rows if author is not None))
        hidden = _hidden(view, names, await self.valkey.batch(_relation_commands(view, names)))
        return [
            author is not None and banned is None and author not in hidden and parse_int(created) >= view.created_after
            for author, banned, created in rows
        ]

    async def at_offset(
        self, view: ReadView, key: str, offset: int, count: int, *, only_shown: bool = False
    ) -> RankedRows | None:
        """Return the posts of a sorted set after so many visible ones; None if these must be counted in steps.

        `only_shown`: banned and deleted posts are not in the list. Then the offset is a rank if no user is hidden from
        the viewer, which takes one round trip. Otherwise, on one server, Valkey counts the visible posts, in one more.
        With `created_after`, posts that are too old have the score 0.
        """
        if only_shown:
            rows, *lists = await self.valkey.batch(
                [("ZRANGE", key, offset, offset + count - 1, "REV", "WITHSCORES"), *_hiding_commands(view)]
            )
            may_skip_old_posts = view.created_after and not (rows and rows[0][1] > 0)
            if not any(lists) and not may_skip_old_posts:
                return RankedRows(offset, rows)
        if self.valkey.clustered:
            return None
        keys = [key, *_viewer_keys(view)]
        args = (offset, count, int(view.feed), int(view.followed), view.created_after)
        reply = await self.functions.query("social_list_at_offset", keys, *args)
        return None if reply is None else RankedRows(reply[0], [(id, float(score)) for id, score in pairs(reply[1])])

    def _cached(self, view: ReadView, ids: Sequence[str]) -> LoadedPosts:
        posts = {id: post for id in ids if (post := self.posts.get(POST(id)))}
        loaded = LoadedPosts(posts, {})
        if view.users:
            loaded.profiles = {name: profile for name in loaded.authors() if (profile := self.profiles.get(USER(name)))}
        return loaded

    async def _load_missing(
        self,
        view: ReadView,
        loaded: LoadedPosts,
        missing: Sequence[str],
        missing_authors: Sequence[str],
        commands: Sequence[Command],
    ) -> list[Any]:
        """Read what is not cached, add it to `loaded` and the cache; return the replies to the other commands."""

        def store(answer: list[list[Any]]) -> None:
            more = LoadedPosts.from_values(missing, *answer)
            for id, post in more.posts.items():
                self.posts.put(POST(id), post)
            for name, profile in more.profiles.items():
                self.profiles.put(USER(name), profile)

        keys = [*map(POST, missing), *map(USER, missing_authors)]
        args = (len(missing), ",".join(PUBLIC_FIELDS) if view.users else "", *POST_FIELDS)
        answer, *replies = await self.functions.query_with_batch(
            "social_posts_and_profiles", keys, args, commands, store=store
        )
        more = LoadedPosts.from_values(missing, *answer)
        loaded.posts |= more.posts
        loaded.profiles |= more.profiles
        return replies

    def _hidden_query(self, view: ReadView, posts: Sequence[str]) -> list[Command]:
        """Return the query for the posts that are hidden because of their authors, who are not known here."""
        if view.viewer is None or not posts:
            return []
        keys, flags = [*_viewer_keys(view), *map(POST, posts)], (int(view.feed), int(view.followed))
        return [self.functions.query_command("social_posts_hidden", keys, *flags)]

    def _flag_queries(self, view: ReadView, ids: Sequence[str]) -> list[Command]:
        """Return the reads of the viewer's likes and bookmarks: documented keys, because other services write them."""
        if view.viewer is None:
            return []
        me = view.viewer.name
        liked = self.functions.query_command("social_liked", [], me, *ids)
        return [liked, ("ZMSCORE", USER_BOOKMARKED(me), *ids)]

    async def _from_cluster(self, view: ReadView, ids: Sequence[str]) -> list[FeedItem | None]:
        commands: list[Command] = [("HMGET", POST(id), *POST_FIELDS) for id in ids]
        flags: list[Command] = []
        if view.viewer is not None:
            me = view.viewer.name
            flags = [*(("SISMEMBER", POST_LIKES(id), me) for id in ids), ("ZMSCORE", USER_BOOKMARKED(me), *ids)]
        replies = await self.valkey.batch([*commands, *flags])
        loaded = LoadedPosts.from_values(ids, replies[: len(ids)], [])
        names = loaded.authors()
        profiles: list[Command] = [("HMGET", USER(name), *PUBLIC_FIELDS) for name in names] if view.users else []
        author_replies = await self.valkey.batch([*profiles, *_relation_commands(view, names)])
        loaded.profiles = {
            name: profile
            for name, values in zip(names, author_replies[: len(profiles)], strict=False)
            if (profile := public_user(values, name))
        }
        return _items(
            view,
            ids,
            loaded,
            [replies[len(ids) : -1], replies[-1]],
            _hidden(view, names, author_replies[len(profiles) :]),
        )


@dataclass(slots=True)
class LoadedPosts:
    """Posts by id, without a viewer's flags, and public profiles by username."""

    posts: dict[str, Post]
    profiles: dict[str, User]

    @classmethod
    def from_values(
        cls, ids: Sequence[str], posts: Sequence[Sequence[str | None]], profiles: Sequence[Sequence[str | None]]
    ) -> LoadedPosts:
        """Build it from the values of `POST_FIELDS` and `PUBLIC_FIELDS`, of which the first is the username."""
        return cls(
            {
                id: post
                for id, values in zip(ids, posts, strict=True)
                if (post := post_from_values(values, id, liked=False, bookmarked=False))
            },
            {values[0]: profile for values in profiles if values[0] and (profile := public_user(values, values[0]))},
        )

    def authors(self) -> list[str]:
        return list({post.user_id: None for post in self.posts.values()})


def _hiding_commands(view: ReadView) -> list[Command]:
    """Return the commands that read whether any user is hidden from the viewer."""
    if view.viewer is None:
        return []
    muted = [USER_MUTED(view.viewer.name)] if view.feed else []
    return [("EXISTS", key) for key in (*hiding_keys(view.viewer), *muted)]


def _viewer_keys(view: ReadView) -> list[str]:
    if view.viewer is None:
        return []
    return [*hiding_keys(view.viewer), *(key(view.viewer.name) for key in (USER_MUTED, USER_FOLLOWING))]


def _relation_commands(view: ReadView, names: Sequence[str]) -> list[Command]:
    """Return the commands that read which users are hidden from the viewer."""
    if view.viewer is None or not names:
        return []
    me = view.viewer.name
    commands: list[Command] = [("ZMSCORE", key, *names) for key in hiding_keys(view.viewer)]
    if view.feed:
        commands.append(("ZMSCORE", USER_MUTED(me), *names))
    if view.followed:
        commands.append(("SMISMEMBER", USER_FOLLOWING(me), *names))
    return commands


def _hidden(view: ReadView, names: Sequence[str], replies: Sequence[list[Any]]) -> set[str]:
    """Return the users hidden from the viewer, from the replies to `_relation_commands`."""
    hidden: set[str] = set()
    if replies and view.followed:
        *replies, follows = replies
        hidden.update(name for name, on in zip(names, follows, strict=True) if not on)
    for scores in replies:
        hidden.update(name for name, score in zip(names, scores, strict=True) if score is not None)
    return hidden


def _items(
    view: ReadView, ids: Sequence[str], loaded: LoadedPosts, flags: Sequence[list[Any]], hidden: set[str]
) -> list[FeedItem | None]:
    """`hidden` has ids of posts, and usernames whose posts are all hidden."""
    none = [None] * len(ids)
    liked, marked = (flags[0], flags[1]) if view.viewer else (none, none)
    items: list[FeedItem | None] = []
    for id, like, mark in zip(ids, liked, marked, strict=True):
        post = loaded.posts.get(id)
        is_shown = post is not None and not post.banned and post.created_at >= view.created_after
        if post is None or not is_shown or post.user_id in hidden or id in hidden:
            items.append(None)
            continue
        if like or mark is not None:
            post = copy(post)  # the cached one is shared by all viewers
            post.isLiked, post.isBookmarked = bool(like), mark is not None
        items.append(FeedItem(post, loaded.profiles.get(post.user_id)))
    return items
