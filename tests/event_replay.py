"""Replays events onto an empty model, to compare it with the source data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from plaza.articles.keys import ARTICLE_DOWN, ARTICLE_UP
from plaza.core.events import Event
from plaza.social.keys import POST_COMMENTS, POST_LIKES, USER_FOLLOWING


@dataclass
class ReplayModel:
    """What events say: follows, likes and comments of posts, votes on articles, lines of orders."""

    follows: set[tuple[str, str]] = field(default_factory=set)
    likes: dict[str, set[str]] = field(default_factory=dict)  # by post that exists
    comments: dict[str, set[str]] = field(default_factory=dict)
    votes: dict[int, dict[str, str]] = field(default_factory=dict)
    orders: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    @classmethod
    def of(cls, events: Iterable[Event]) -> ReplayModel:
        model = cls()
        for event in events:
            model.apply(event.type, event.data)
        return model

    def apply(self, kind: str, data: dict[str, Any]) -> None:
        if kind == "user.followed":
            self.follows.add((data["follower"], data["followed"]))
        elif kind == "user.unfollowed":
            self.follows.discard((data["follower"], data["followed"]))
        elif kind == "post.created":
            self.likes[data["post"]], self.comments[data["post"]] = set(), set()
        elif kind == "post.deleted":
            del self.likes[data["post"]], self.comments[data["post"]]
        elif kind == "post.liked":
            self.likes[data["post"]].add(data["username"])
        elif kind == "post.unliked":
            self.likes[data["post"]].discard(data["username"])
        elif kind == "comment.created":
            self.comments[data["post"]].add(data["comment"])
        elif kind == "comment.deleted":
            self.comments[data["post"]].discard(data["comment"])
        elif kind == "article.posted":
            self.votes[data["article"]] = {data["author"]: "up"}
        elif kind == "article.voted":
            self.votes[data["article"]][data["username"]] = data["direction"]
        elif kind == "order.placed":
            self.orders[data["order"]] = [(line["item"], line["qty"]) for line in data["items"]]

    async def assert_is_source_data(self, redis_client: Any, users: Iterable[str]) -> None:
        """Compare follows, likes, comments and votes with the documented keys."""
        stored = {(name, other) for name in users for other in await redis_client.smembers(USER_FOLLOWING(name))}
        assert self.follows == stored
        for post, names in self.likes.items():
            assert names == await redis_client.smembers(POST_LIKES(post)), post
            assert self.comments[post] == set(await redis_client.lrange(POST_COMMENTS(post), 0, -1)), post
        for article, votes in self.votes.items():
            for direction, key in (("up", ARTICLE_UP), ("down", ARTICLE_DOWN)):
                expected = {f"user:{name}" for name, vote in votes.items() if vote == direction}
                assert await redis_client.smembers(key(article)) == expected, article
