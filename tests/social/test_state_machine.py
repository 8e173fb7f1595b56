"""Whatever is done in whatever order, all of social's keys are those of a plain model in Python."""

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
from tests.social.conftest import ADMIN, SETTINGS, Social, build_social, services_of
from tests.social.consistency import Facts, faults, read_all
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
    """Social, in the plainest words."""

    posts: dict[str, ModelPost] = field(default_factory=dict)
    roles: dict[str, str] = field(default_factory=lambda: dict.fromkeys(NAMES, "user"))
    follows: set[tuple[str, str]] = field(default_factory=set)
    blocks: set[tuple[str, str]] = field(default_factory=set)
    mutes: set[tuple[str, str]] = field(default_factory=set)

    def hidden(self, a: str, b: str) -> bool:
        return (a, b) in self.blocks or (b, a) in self.blocks

    def seen(self, who: str, id: str) -> ModelPost | None:
        """A post that this person can see."""
        post = self.posts.get(id)
        return None if post is None or post.banned or self.hidden(who, post.author) else post

    def marked(self, who: str, id: str, kind: Literal["likes", "bookmarks"], *, on: bool) -> ModelPost | None:
        """A post that this person can mark; or take an own mark back from, although it is hidden by now."""
        post = self.posts.get(id)
        return post if post is not None and not on and who in getattr(post, kind) else self.seen(who, id)


class Machine(RuleBasedStateMachine):
    place: Server | Cluster
    posts = Bundle("posts")
    comments = Bundle("comments")

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
        self.social = Social(valkey, functions, auth, clock, services_of(build_social(functions, auth, clock)))
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
        facts = await read_all(self.redis_client)
        assert faults(facts, self.social.clock.now_ms()) == []
        assert not facts["pending"]
        assert seen(facts) == self.model

    def attempt(self, work: Coroutine[Any, Any, Any], allowed: bool) -> Any:
        """Do it; it is refused exactly when the model says so."""
        try:
            done = self.run(work)
        except (NotFound, Forbidden, SelfRelation):
            assert not allowed
            return None
        assert allowed
        return done

    @initialize(target=posts, who=names, tags=tags)
    def first_post(self, who: str, tags: list[str]) -> str:
        return self.post(who, tags)

    @rule(target=posts, who=names, tags=tags)
    def another_post(self, who: str, tags: list[str]) -> str:
        return self.post(who, tags)

    def post(self, who: str, tags: list[str]) -> str:
        self.social.clock.advance(seconds=1)
        made = self.run(self.social.posts.create(Actor(who, "user"), NewPost("x", None, tags)))
        self.model.posts[made.id] = ModelPost(who, tags)
        return str(made.id)

    @rule(id=posts, who=names, on=st.booleans())
    def like(self, id: str, who: str, on: bool) -> None:
        operation = self.social.engagements.like if on else self.social.engagements.unlike
        post = self.model.marked(who, id, "likes", on=on)
        done = self.attempt(operation(Actor(who, "user"), id), post is not None)
        if post is not None:
            assert done.changed == ((who in post.likes) != on)
            (post.likes.add if on else post.likes.discard)(who)
            assert done.likesCount == len(post.likes)

    @rule(id=posts, who=names, on=st.booleans())
    def bookmark(self, id: str, who: str, on: bool) -> None:
        operation = self.social.engagements.bookmark if on else self.social.engagements.unbookmark
        post = self.model.marked(who, id, "bookmarks", on=on)
        self.attempt(operation(Actor(who, "user"), id), post is not None)
        if post is not None:
            (post.bookmarks.add if on else post.bookmarks.discard)(who)

    @rule(target=comments, id=posts, who=names)
    def comment(self, id: str, who: str) -> tuple[str, str]:
        self.social.clock.advance(seconds=1)
        post = self.model.seen(who, id)
        made = self.attempt(self.social.comments.create(Actor(who, "user"), id, NewComment("hi")), post is not None)
        if post is not None:
            post.comments[made.id] = who
        return id, made.id if made else ""

    @rule(comment=consumes(comments), who=names)
    def uncomment(self, comment: tuple[str, str], who: str) -> None:
        id, made = comment
        post = self.model.posts.get(id)
        if not made:
            return
        allowed = post is not None and made in post.comments and who in (post.author, post.comments[made])
        self.attempt(self.social.comments.delete(Actor(who, "user"), made), allowed)
        if allowed and post is not None:
            del post.comments[made]

    @rule(id=posts, who=names, tags=tags)
    def edit(self, id: str, who: str, tags: list[str]) -> None:
        post = self.model.posts.get(id)
        allowed = post is not None and not post.banned and post.author == who
        text = " ".join(f"#{tag}" for tag in tags) or "nothing"
        edited = self.attempt(self.social.posts.edit(Actor(who, "user"), id, PostEdit(text)), allowed)
        if allowed and post is not None:
            assert set(tags) <= set(edited.hashtags)
            post.tags = edited.hashtags

    @rule(id=posts, on=st.booleans())
    def ban(self, id: str, on: bool) -> None:
        post = self.model.posts.get(id)
        self.attempt(self.social.posts.ban(ADMIN, id, on=on), post is not None)
        if post is not None:
            post.banned = on

    @rule(id=posts, who=names)
    def delete(self, id: str, who: str) -> None:
        post = self.model.posts.get(id)
        allowed = post is not None and post.author == who
        self.attempt(self.social.posts.delete(Actor(who, "user"), id), allowed)
        if allowed:
            del self.model.posts[id]

    @rule(who=names, other=names, on=st.booleans())
    def follow(self, who: str, other: str, on: bool) -> None:
        operation = self.social.relations.follow if on else self.social.relations.unfollow
        allowed = who != other and not (on and self.model.hidden(who, other))
        self.attempt(operation(Actor(who, "user"), other), allowed)
        if allowed:
            (self.model.follows.add if on else self.model.follows.discard)((who, other))

    @rule(who=names, other=names, on=st.booleans())
    def block(self, who: str, other: str, on: bool) -> None:
        operation = self.social.relations.block if on else self.social.relations.unblock
        self.attempt(operation(Actor(who, "user"), other), who != other)
        if who != other:
            (self.model.blocks.add if on else self.model.blocks.discard)((who, other))
            if on:
                self.model.follows -= {(who, other), (other, who)}

    @rule(who=names, other=names, on=st.booleans())
    def mute(self, who: str, other: str, on: bool) -> None:
        operation = self.social.relations.mute if on else self.social.relations.unmute
        allowed = who != other and not (on and self.model.hidden(who, other))
        self.attempt(operation(Actor(who, "user"), other), allowed)
        if allowed:
            (self.model.mutes.add if on else self.model.mutes.discard)((who, other))

    @rule(who=names, role=st.sampled_from(["user", "model", "admin"]))
    def role(self, who: str, role: Any) -> None:
        self.run(self.social.users.set_role(ADMIN, who, role))
        self.model.roles[who] = role

    @rule(who=names)
    def leave_and_come_back(self, who: str) -> None:
        assert self.run(self.social.deletion.delete(ADMIN, who))
        self.run(self.social.create_user(who))
        model = self.model
        model.posts = {id: post for id, post in model.posts.items() if post.author != who}
        for post in model.posts.values():
            post.likes.discard(who)
            post.bookmarks.discard(who)
            post.comments = {id: author for id, author in post.comments.items() if author != who}
        for ties in (model.follows, model.blocks, model.mutes):
            ties -= {tie for tie in ties if who in tie}
        model.roles[who] = "user"

    @rule(seconds=st.sampled_from([40, 3_600, 86_400 * 13]))
    def time_passes(self, seconds: int) -> None:
        self.social.clock.advance(seconds=seconds)
        self.run(self.social.jobs.rescore())
        self.run(self.social.jobs.restyle())
        self.run(self.compare())


def seen(facts: Facts) -> Model:
    """The model that the keys tell of."""
    of = {name: {parts[0] if parts else "": value for parts, value in found.items()} for name, found in facts.items()}
    posts = {
        id: ModelPost(
            author=post["user_id"],
            tags=[tag for tag in post["hashtags"].split(",") if tag],
            banned=post.get("banned") == "true",
            likes=set(of["post_likes"].get(id, ())),
            bookmarks=set(of["post_bookmarks"].get(id, ())),
            comments={c: of["comment"][c]["username"] for c in of["post_comments"].get(id, ())},
        )
        for id, post in of["post"].items()
    }
    return Model(
        posts,
        {name: user["role"] for name, user in of["user"].items()},
        *({(name, other) for name, others in of[family].items() for other in others}
          for family in ("user_following", "user_blocked", "user_muted")),
    )  # fmt: skip


def test_the_keys_equal_those_of_a_simple_model(place: Server | Cluster) -> None:
    """On one server, then on a cluster."""

    class Here(Machine):
        pass

    Here.place = place
    run_state_machine_as_test(Here, settings=settings(max_examples=12, stateful_step_count=40))
