"""After any sequence of operations, social's keys equal those of a plain Python model."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Literal

import redis.asyncio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, rule, run_state_machine_as_test

from plaza.core import paging
from plaza.core.auth import Actor, Auth
from plaza.core.clock import ManualClock
from plaza.core.errors import Forbidden, NotFound
from plaza.core.functions import Functions
from plaza.core.keyspace import Layout, use_layout
from plaza.core.revocations import Revocations
from plaza.social.domain import DOMAIN
from plaza.social.model import NewComment, NewPost, PostEdit, SelfRelation
from tests.servers import Cluster, Server
from tests.social.conftest import ADMIN, SETTINGS, Social, build_social, services_by_type
from tests.social.consistency import Keyspace, read_all, violations
from tests.timeouts import connect_for_test

NAMES = ["ana", "bob", "cat", "dan"]
names = st.sampled_from(NAMES)
tags = st.lists(st.sampled_from(["tea", "été", "x"]), max_size=2, unique=True)


@dataclass
class ModelPost:
    author: str
    tags: list[str]
    banned: bool = False
    likes: set[str] = field(default_factory=set)
    bookmarks: set[str] = field(default_factory=set)
    comments: dict[str, str] = field(default_factory=dict)  # id → author, in order


@dataclass
class Model:
    """A plain Python model of social."""

    posts: dict[str, ModelPost] = field(default_factory=dict)
    roles: dict[str, str] = field(default_factory=lambda: dict.fromkeys(NAMES, "user"))
    follows: set[tuple[str, str]] = field(default_factory=set)
    blocks: set[tuple[str, str]] = field(default_factory=set)
    mutes: set[tuple[str, str]] = field(default_factory=set)

    def hidden(self, a: str, b: str) -> bool:
        return (a, b) in self.blocks or (b, a) in self.blocks

    def visible_post(self, user: str, id: str) -> ModelPost | None:
        """Return the post if the user can see it."""
        post = self.posts.get(id)
        return None if post is None or post.banned or self.hidden(user, post.author) else post

    def markable_post(self, user: str, id: str, kind: Literal["likes", "bookmarks"], *, on: bool) -> ModelPost | None:
        """Return the post if the user can add a mark, or remove an own mark from a post that is now hidden."""
        post = self.posts.get(id)
        return post if post is not None and not on and user in getattr(post, kind) else self.visible_post(user, id)


class SocialHistory(RuleBasedStateMachine):
    """One history, on a server or a cluster that is emptied before it."""

    place: Server | Cluster

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.model = Model()
        self.run(self.open())

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    async def open(self) -> None:
        place = self.place
        if isinstance(place, Cluster):
            place.flush()
            self.redis_client: Any = redis.asyncio.RedisCluster(
                host="127.0.0.1", port=place.nodes[0].port, decode_responses=True
            )
        else:
            self.redis_client = redis.asyncio.Redis(port=place.port, decode_responses=True)
            await self.redis_client.flushall()
        valkey = await connect_for_test(place.url)
        use_layout(valkey.layout)
        functions, clock = Functions(valkey, [DOMAIN.library, paging.LIBRARY]), ManualClock()
        await functions.load()
        auth = Auth(SETTINGS, Revocations(valkey), clock=clock)
        self.social = Social(valkey, functions, auth, clock, services_by_type(build_social(functions, auth, clock)))
        for name in NAMES:
            await self.social.create_user(name)

    async def close(self) -> None:
        await self.compare()
        await self.redis_client.aclose()
        await self.social.valkey.close()

    def teardown(self) -> None:
        self.run(self.close())
        self.runner.close()
        use_layout(Layout.PLAIN)

    async def compare(self) -> None:
        keyspace = await read_all(self.redis_client)
        assert violations(keyspace, self.social.clock.now_ms()) == []
        assert not keyspace["pending"]
        assert model_from_keys(keyspace) == self.model

    def attempt(self, work: Coroutine[Any, Any, Any], allowed: bool) -> Any:
        """Run an operation. It must succeed if the model allows it, and be refused otherwise."""
        try:
            done = self.run(work)
        except (NotFound, Forbidden, SelfRelation):
            assert not allowed
            return None
        assert allowed
        return done


class PostRules(SocialHistory):
    """What users do with posts."""

    posts = Bundle("posts")
    comments = Bundle("comments")

    @initialize(target=posts, user=names, tags=tags)
    def first_post(self, user: str, tags: list[str]) -> str:
        return self.post(user, tags)

    @rule(target=posts, user=names, tags=tags)
    def another_post(self, user: str, tags: list[str]) -> str:
        return self.post(user, tags)

    def post(self, user: str, tags: list[str]) -> str:
        self.social.clock.advance(seconds=1)
        made = self.run(self.social.posts.create(Actor(user, "user"), NewPost("x", None, tags)))
        self.model.posts[made.id] = ModelPost(user, tags)
        return str(made.id)

    @rule(id=posts, user=names, on=st.booleans())
    def like(self, id: str, user: str, on: bool) -> None:
        operation = self.social.engagements.like if on else self.social.engagements.unlike
        post = self.model.markable_post(user, id, "likes", on=on)
        done = self.attempt(operation(Actor(user, "user"), id), post is not None)
        if post is not None:
            assert done.changed == ((user in post.likes) != on)
            (post.likes.add if on else post.likes.discard)(user)
            assert done.likesCount == len(post.likes)

    @rule(id=posts, user=names, on=st.booleans())
    def bookmark(self, id: str, user: str, on: bool) -> None:
        operation = self.social.engagements.bookmark if on else self.social.engagements.unbookmark
        post = self.model.markable_post(user, id, "bookmarks", on=on)
        self.attempt(operation(Actor(user, "user"), id), post is not None)
        if post is not None:
            (post.bookmarks.add if on else post.bookmarks.discard)(user)

    @rule(target=comments, id=posts, user=names)
    def comment(self, id: str, user: str) -> tuple[str, str]:
        self.social.clock.advance(seconds=1)
        post = self.model.visible_post(user, id)
        made = self.attempt(self.social.comments.create(Actor(user, "user"), id, NewComment("hi")), post is not None)
        if post is not None:
            post.comments[made.id] = user
        return id, made.id if made else ""

    @rule(comment=consumes(comments), user=names)
    def uncomment(self, comment: tuple[str, str], user: str) -> None:
        id, made = comment
        post = self.model.posts.get(id)
        if not made:
            return
        allowed = post is not None and made in post.comments and user in (post.author, post.comments[made])
        self.attempt(self.social.comments.delete(Actor(user, "user"), made), allowed)
        if allowed and post is not None:
            del post.comments[made]

    @rule(id=posts, user=names, tags=tags)
    def edit(self, id: str, user: str, tags: list[str]) -> None:
        post = self.model.posts.get(id)
        allowed = post is not None and not post.banned and post.author == user
        text = " ".join(f"#{tag}" for tag in tags) or "nothing"
        edited = self.attempt(self.social.posts.edit(Actor(user, "user"), id, PostEdit(text)), allowed)
        if allowed and post is not None:
            assert set(tags) <= set(edited.hashtags)
            post.tags = edited.hashtags

    @rule(id=posts, on=st.booleans())
    def ban(self, id: str, on: bool) -> None:
        post = self.model.posts.get(id)
        self.attempt(self.social.posts.ban(ADMIN, id, on=on), post is not None)
        if post is not None:
            post.banned = on

    @rule(id=posts, user=names)
    def delete(self, id: str, user: str) -> None:
        post = self.model.posts.get(id)
        allowed = post is not None and post.author == user
        self.attempt(self.social.posts.delete(Actor(user, "user"), id), allowed)
        if allowed:
            del self.model.posts[id]


class SocialMachine(PostRules):
    """What users do with posts and with each other, while time passes."""

    @rule(user=names, other=names, on=st.booleans())
    def follow(self, user: str, other: str, on: bool) -> None:
        operation = self.social.relations.follow if on else self.social.relations.unfollow
        allowed = user != other and not (on and self.model.hidden(user, other))
        self.attempt(operation(Actor(user, "user"), other), allowed)
        if allowed:
            (self.model.follows.add if on else self.model.follows.discard)((user, other))

    @rule(user=names, other=names, on=st.booleans())
    def block(self, user: str, other: str, on: bool) -> None:
        operation = self.social.relations.block if on else self.social.relations.unblock
        self.attempt(operation(Actor(user, "user"), other), user != other)
        if user != other:
            (self.model.blocks.add if on else self.model.blocks.discard)((user, other))
            if on:
                self.model.follows -= {(user, other), (other, user)}

    @rule(user=names, other=names, on=st.booleans())
    def mute(self, user: str, other: str, on: bool) -> None:
        operation = self.social.relations.mute if on else self.social.relations.unmute
        allowed = user != other and not (on and self.model.hidden(user, other))
        self.attempt(operation(Actor(user, "user"), other), allowed)
        if allowed:
            (self.model.mutes.add if on else self.model.mutes.discard)((user, other))

    @rule(user=names, role=st.sampled_from(["user", "model", "admin"]))
    def role(self, user: str, role: Any) -> None:
        self.run(self.social.users.set_role(ADMIN, user, role))
        self.model.roles[user] = role

    @rule(user=names)
    def delete_and_create_again(self, user: str) -> None:
        assert self.run(self.social.deletion.delete(ADMIN, user))
        self.run(self.social.create_user(user))
        model = self.model
        model.posts = {id: post for id, post in model.posts.items() if post.author != user}
        for post in model.posts.values():
            post.likes.discard(user)
            post.bookmarks.discard(user)
            post.comments = {id: author for id, author in post.comments.items() if author != user}
        for relations in (model.follows, model.blocks, model.mutes):
            relations -= {pair for pair in relations if user in pair}
        model.roles[user] = "user"

    @rule(seconds=st.sampled_from([40, 3_600, 86_400 * 13]))
    def advance_time(self, seconds: int) -> None:
        self.social.clock.advance(seconds=seconds)
        self.run(self.social.jobs.rescore())
        self.run(self.social.jobs.restyle())
        self.run(self.compare())


def model_from_keys(keyspace: Keyspace) -> Model:
    """The model read from the keys."""
    families = {
        name: {parts[0] if parts else "": value for parts, value in found.items()} for name, found in keyspace.items()
    }
    posts = {
        id: ModelPost(
            author=post["user_id"],
            tags=[tag for tag in post["hashtags"].split(",") if tag],
            banned=post.get("banned") == "true",
            likes=set(families["post_likes"].get(id, ())),
            bookmarks=set(families["post_bookmarks"].get(id, ())),
            comments={c: families["comment"][c]["username"] for c in families["post_comments"].get(id, ())},
        )
        for id, post in families["post"].items()
    }
    return Model(
        posts,
        {name: user["role"] for name, user in families["user"].items()},
        *({(name, other) for name, others in families[family].items() for other in others}
          for family in ("user_following", "user_blocked", "user_muted")),
    )  # fmt: skip


def test_the_keys_equal_those_of_a_simple_model(place: Server | Cluster) -> None:
    """Runs on one server and on a cluster."""

    class PlacedMachine(SocialMachine):
        pass

    PlacedMachine.place = place
    run_state_machine_as_test(PlacedMachine, settings=settings(max_examples=12, stateful_step_count=40))
