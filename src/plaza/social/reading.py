"""Posts as a reader sees them: with their flags, and without what is not for this reader.

Everything a page shows comes in one batch, if it is known whose posts they are: the posts, their authors' cards, and
the reader's own sets, each asked once for all. A list on one server tells the authors along with the ids; on a cluster
they are in the posts, so the cards take a second batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from plaza.core.auth import Actor
from plaza.core.functions import Functions
from plaza.core.paging import After, Position, checksum
from plaza.core.valkey.calls import Arg
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
from plaza.social.model import POST_FIELDS, PUBLIC_FIELDS, FeedItem, User, card_of, post_from

Command = tuple[Arg, ...]

AUTHOR, BANNED = POST_FIELDS.index("user_id"), POST_FIELDS.index("banned")


@dataclass(slots=True)
class View:
    """Whose eyes, and what kind of list. `authors` grows as lists tell whose posts they hold."""

    viewer: Actor | None
    users: bool = True  # with the authors' cards
    feed: bool = True  # muted people are left out of feeds
    followed: bool = False  # only people whom the viewer follows
    authors: dict[str, str] = field(default_factory=dict)


class Reader:
    def __init__(self, functions: Functions) -> None:
        self.functions = functions
        self.valkey = functions.valkey

    def behind(self, key: str, view: View) -> After[Position]:
        """Places in a sorted set of posts, newest first. One round trip; on one server it tells the authors too."""
        name = checksum(key)

        async def after(start: Position | None, count: int) -> list[tuple[str, Position]]:
            place = ("", "") if start is None else (repr(start.score), start.id)
            rows = await self.functions.ask("social_posts_after", [key], *place, count)
            return positions(rows, name, view)

        return after

    async def items(self, view: View, ids: Sequence[str]) -> list[FeedItem | None]:
        """Posts for a reader, None for one that is gone, banned or hidden. One round trip, or two on a cluster."""
        if not ids:
            return []
        authors = [view.authors.get(id, "") for id in ids]
        known = all(authors)
        commands: list[Command] = [("HMGET", POST(id), *POST_FIELDS) for id in ids]
        commands += self._own(view, ids)
        names = list(dict.fromkeys(authors)) if known else []
        commands += self._about(view, names)
        replies = await self.valkey.batch(commands)
        posts, replies = replies[: len(ids)], replies[len(ids) :]
        liked, marked = (replies.pop(0), replies.pop(0)) if view.viewer else ([None] * len(ids), [None] * len(ids))
        if not known:
            names = list(dict.fromkeys(post[AUTHOR] for post in posts if post[AUTHOR] is not None))
            about = self._about(view, names)
            replies = await self.valkey.batch(about) if about else []
        cards, hidden = self._read_about(view, names, replies)
        return [
            _item(post, like is not None, mark is not None, cards, hidden, view)
            for post, like, mark in zip(posts, liked, marked, strict=True)
        ]

    def _own(self, view: View, ids: Sequence[str]) -> list[Command]:
        if view.viewer is None:
            return []
        me = view.viewer.name
        return [("ZMSCORE", USER_LIKED(me), *ids), ("ZMSCORE", USER_BOOKMARKED(me), *ids)]

    def _about(self, view: View, names: Sequence[str]) -> list[Command]:
        """What is asked about the authors: their cards, and how the reader stands to them."""
        if not names:
            return []
        commands: list[Command] = [("HMGET", USER(name), *PUBLIC_FIELDS) for name in names] if view.users else []
        if view.viewer is not None:
            me = view.viewer.name
            commands += [("ZMSCORE", USER_BLOCKED(me), *names), ("ZMSCORE", USER_BLOCKED_BY(me), *names)]
            if view.feed:
                commands.append(("ZMSCORE", USER_MUTED(me), *names))
            if view.followed:
                commands.append(("SMISMEMBER", USER_FOLLOWING(me), *names))
        return commands

    def _read_about(self, view: View, names: Sequence[str], replies: list[Any]) -> tuple[dict[str, User], set[str]]:
        cards: dict[str, User] = {}
        hidden: set[str] = set()
        if not names:
            return cards, hidden
        if view.users:
            for name, values in zip(names, replies, strict=False):
                card = card_of(values)
                if card is not None:
                    cards[name] = card
            replies = replies[len(names) :]
        if view.followed and view.viewer is not None:
            hidden.update(name for name, follows in zip(names, replies.pop(), strict=True) if not follows)
        for scores in replies:
            hidden.update(name for name, score in zip(names, scores, strict=True) if score is not None)
        return cards, hidden


def positions(rows: Sequence[Any], name: int, view: View) -> list[tuple[str, Position]]:
    """What Lua says of a list: id, score, author ('' if it cannot know), and so on."""
    for id, author in zip(rows[::3], rows[2::3], strict=True):
        if author:
            view.authors[id] = author
    return [(id, Position(name, float(score), id)) for id, score in zip(rows[::3], rows[1::3], strict=True)]


def _item(
    values: Sequence[str | None], liked: bool, marked: bool, cards: dict[str, User], hidden: set[str], view: View
) -> FeedItem | None:
    if values[BANNED] is not None or values[AUTHOR] in hidden:
        return None
    post = post_from(values, liked=liked, bookmarked=marked)
    if post is None:
        return None
    return FeedItem(post, cards.get(post.user_id) if view.users else None)
