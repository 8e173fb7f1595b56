"""Posts as a reader sees them: with their flags, and without what is not for this reader.

Everything a page shows comes in one batch. Most pages show what other pages have just shown, so on one server posts and
cards stay at hand in this process, and Valkey says when one changes. The news comes on the connection that tells the
ids of a list, ahead of them: who asks for a list after a change sees the change. What is not at hand is read by a
question that knows the way from posts to their authors, in the same round trip as the reader's own flags.

On a cluster the way from a post to its author leads to another node: no news in order, and a second batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Final

from plaza.core.auth import Actor
from plaza.core.functions import Functions
from plaza.core.tracking_cache import TrackingCache
from plaza.core.valkey import Arg, ReplyError
from plaza.core.wrong_type import find_wrong_types, is_wrong_type
from plaza.social.keys import (
    POST,
    USER,
    USER_BLOCKED,
    USER_BLOCKED_BY,
    USER_BOOKMARKED,
    USER_FOLLOWING,
    USER_LIKED,
    USER_MUTED,
)
from plaza.social.model import POST_FIELDS, PUBLIC_FIELDS, FeedItem, Post, User, post_from_values, public_user

Command = tuple[Arg, ...]

# Posts and cards at hand. The longest post is 10 kB, most are a hundredth of that.
MAX_CACHED_POSTS: Final = 4_096
MAX_CACHED_PROFILES: Final = 8_192

# So many, when none is at hand, take Valkey some 1.5 ms.
MAX_POSTS_PER_READ: Final = 100


@dataclass(slots=True)
class ReadView:
    """Whose eyes, and what kind of list."""

    viewer: Actor | None
    users: bool = True  # with the authors' cards
    feed: bool = True  # muted people are left out of feeds
    followed: bool = False  # only people whom the viewer follows


class PostReader:
    def __init__(self, functions: Functions) -> None:
        self.functions = functions
        self.valkey = functions.valkey
        self.posts: TrackingCache[Post] = TrackingCache(functions.valkey, MAX_CACHED_POSTS)
        self.cards: TrackingCache[User] = TrackingCache(functions.valkey, MAX_CACHED_PROFILES)

    async def items(self, view: ReadView, ids: Sequence[str], *, listed: bool = True) -> list[FeedItem | None]:
        """Posts for a reader, None for one that is gone, banned or hidden. One round trip, two on a cluster.

        More than a hundred take that for each hundred. Only if Valkey told the ids just now (`listed`) is what is at
        hand sure to be true.
        """
        found: list[FeedItem | None] = []
        for first in range(0, len(ids), MAX_POSTS_PER_READ):
            found += await self._some_sound(view, ids[first : first + MAX_POSTS_PER_READ], listed)
        return found

    async def _some_sound(self, view: ReadView, ids: Sequence[str], listed: bool) -> list[FeedItem | None]:
        """One post that is none, because somebody else wrote another type there, does not take a whole list with it."""
        try:
            return await self._some(view, ids, listed)
        except ReplyError as error:
            broken = await find_wrong_types(self.valkey, {POST(id): POST for id in ids}) if is_wrong_type(error) else {}
            if not broken or len(ids) == 1:
                raise
        sound = [id for id in ids if POST(id) not in broken]
        found = dict(zip(sound, await self._some(view, sound, listed), strict=True)) if sound else {}
        return [found.get(id) for id in ids]

    async def _some(self, view: ReadView, ids: Sequence[str], listed: bool) -> list[FeedItem | None]:
        if self.valkey.clustered:
            return await self._from_cluster(view, ids)
        shown = self._at_hand(view, ids) if listed else LoadedPosts({}, {})
        names = shown.authors()
        missing = [id for id in ids if id not in shown.posts]
        unseen = [name for name in names if name not in shown.cards] if view.users else []
        commands = [*_own(view, ids), *_about(view, names), *self._hiding(view, missing)]
        if missing or unseen:
            replies = await self._read(view, shown, missing, unseen, commands)
        else:
            replies = await self.valkey.batch(commands)
        away = replies.pop() if view.viewer and missing else []
        hidden = {id for id, is_away in zip(missing, away, strict=False) if is_away}
        return _items(view, ids, shown, replies, hidden | _hidden(view, names, replies[2:]))

    async def seen(self, view: ReadView, ids: Sequence[str]) -> list[bool]:
        """Which posts the reader would see. Two round trips, and far less than `items` for each."""
        facts = await self.valkey.batch([("HMGET", POST(id), "user_id", "banned") for id in ids])
        names = list(dict.fromkeys(author for author, _ in facts if author is not None))
        hidden = _hidden(view, names, await self.valkey.batch(_about(view, names)))
        return [author is not None and banned is None and author not in hidden for author, banned in facts]

    def _at_hand(self, view: ReadView, ids: Sequence[str]) -> LoadedPosts:
        posts = {id: post for id in ids if (post := self.posts.get(POST(id)))}
        shown = LoadedPosts(posts, {})
        if view.users:
            shown.cards = {name: card for name in shown.authors() if (card := self.cards.get(USER(name)))}
        return shown

    async def _read(
        self,
        view: ReadView,
        shown: LoadedPosts,
        missing: Sequence[str],
        unseen: Sequence[str],
        beside: Sequence[Command],
    ) -> list[Any]:
        """Read what is not at hand, and keep it. Gives the answers to what is asked beside it."""

        def keep(answer: list[list[Any]]) -> None:
            more = LoadedPosts.of(*answer)
            for id, post in more.posts.items():
                self.posts.put(POST(id), post)
            for name, card in more.cards.items():
                self.cards.put(USER(name), card)

        keys = [*map(POST, missing), *map(USER, unseen)]
        args = (len(missing), ",".join(PUBLIC_FIELDS) if view.users else "", *POST_FIELDS)
        answer, *replies = await self.functions.query_with_batch(
            "social_posts_and_cards", keys, args, beside, store=keep
        )
        more = LoadedPosts.of(*answer)
        shown.posts |= more.posts
        shown.cards |= more.cards
        return replies

    def _hiding(self, view: ReadView, posts: Sequence[str]) -> list[Command]:
        """How the reader stands to the authors of posts, where it is not known who they are."""
        if view.viewer is None or not posts:
            return []
        keys = [key(view.viewer.name) for key in (USER_BLOCKED, USER_BLOCKED_BY, USER_MUTED, USER_FOLLOWING)]
        flags = (int(view.feed), int(view.followed))
        return [self.functions.query_command("social_posts_hidden", [*keys, *map(POST, posts)], *flags)]

    async def _from_cluster(self, view: ReadView, ids: Sequence[str]) -> list[FeedItem | None]:
        commands: list[Command] = [("HMGET", POST(id), *POST_FIELDS) for id in ids]
        replies = await self.valkey.batch([*commands, *_own(view, ids)])
        shown = LoadedPosts.of(replies[: len(ids)], [])
        names = shown.authors()
        cards: list[Command] = [("HMGET", USER(name), *PUBLIC_FIELDS) for name in names] if view.users else []
        about = await self.valkey.batch([*cards, *_about(view, names)])
        shown.cards = LoadedPosts.of([], about[: len(cards)]).cards
        return _items(view, ids, shown, replies[len(ids) :], _hidden(view, names, about[len(cards) :]))


@dataclass(slots=True)
class LoadedPosts:
    """Posts by their ids, without anybody's flags, and cards by their names."""

    posts: dict[str, Post]
    cards: dict[str, User]

    @classmethod
    def of(cls, posts: Sequence[Sequence[str | None]], cards: Sequence[Sequence[str | None]]) -> LoadedPosts:
        """From the values of their fields."""
        return cls(
            {post.id: post for values in posts if (post := post_from_values(values, liked=False, bookmarked=False))},
            {card.username: card for values in cards if (card := public_user(values))},
        )

    def authors(self) -> list[str]:
        return list({post.user_id: None for post in self.posts.values()})


def _own(view: ReadView, ids: Sequence[str]) -> list[Command]:
    if view.viewer is None:
        return []
    me = view.viewer.name
    return [("ZMSCORE", USER_LIKED(me), *ids), ("ZMSCORE", USER_BOOKMARKED(me), *ids)]


def _about(view: ReadView, names: Sequence[str]) -> list[Command]:
    """How the reader stands to people."""
    if view.viewer is None or not names:
        return []
    me = view.viewer.name
    commands: list[Command] = [("ZMSCORE", USER_BLOCKED(me), *names), ("ZMSCORE", USER_BLOCKED_BY(me), *names)]
    if view.feed:
        commands.append(("ZMSCORE", USER_MUTED(me), *names))
    if view.followed:
        commands.append(("SMISMEMBER", USER_FOLLOWING(me), *names))
    return commands


def _hidden(view: ReadView, names: Sequence[str], replies: Sequence[list[Any]]) -> set[str]:
    """Who is not for this reader, by the answers to `_about`."""
    hidden: set[str] = set()
    if replies and view.followed:
        *replies, follows = replies
        hidden.update(name for name, on in zip(names, follows, strict=True) if not on)
    for scores in replies:
        hidden.update(name for name, score in zip(names, scores, strict=True) if score is not None)
    return hidden


def _items(
    view: ReadView, ids: Sequence[str], shown: LoadedPosts, flags: Sequence[list[Any]], hidden: set[str]
) -> list[FeedItem | None]:
    """`hidden` are posts, and people all of whose posts are."""
    nobody = [None] * len(ids)
    liked, marked = (flags[0], flags[1]) if view.viewer else (nobody, nobody)
    items: list[FeedItem | None] = []
    for id, like, mark in zip(ids, liked, marked, strict=True):
        post = shown.posts.get(id)
        if post is None or post.banned or post.user_id in hidden or id in hidden:
            items.append(None)
            continue
        if like is not None or mark is not None:
            post = copy(post)  # the one at hand is everybody's
            post.isLiked, post.isBookmarked = like is not None, mark is not None
        items.append(FeedItem(post, shown.cards.get(post.user_id)))
    return items
