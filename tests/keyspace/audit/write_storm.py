"""Concurrent users who run random operations of all five domains."""

from __future__ import annotations

import asyncio
import contextlib
import random
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable

from plaza.app import Plaza
from plaza.articles.model import NewArticle
from plaza.articles.service import Articles
from plaza.challenges.model import NewChallengePost
from plaza.challenges.posts import ChallengePosts
from plaza.core.auth import Actor
from plaza.core.errors import PlazaError
from plaza.live.heartbeats import LiveService
from plaza.live.model import Heartbeat, LeaveRequest, Viewer
from plaza.sessions.service import Sessions
from plaza.sessions.sign_in import SignIn
from plaza.shop.carts import Carts
from plaza.shop.views import Views
from plaza.social.account_deletion import AccountDeletion as Goodbye
from plaza.social.comments import Comments
from plaza.social.engagements import Engagements
from plaza.social.inbound_sync import InboundSync
from plaza.social.model import NewComment, NewPost, PostEdit, Profile
from plaza.social.posts import Posts
from plaza.social.relations import Relations
from plaza.social.users import Users
from tests.keyspace.audit.sample_community import ADMIN, NAMES, SampleCommunity, actor

Operation = Callable[[], Awaitable[object]]


class WriteStorm:
    """Runs random operations."""

    def __init__(self, plaza: Plaza, community: SampleCommunity, seed: int) -> None:
        self.plaza = plaza
        self.community = community
        self.random = random.Random(seed)
        self.tokens = [community.guest, community.token]
        self.guests = ["guest0"]  # users who register and are deleted
        self.done = 0

    async def run_one(self) -> None:
        domains = (self._social, self._users, self._articles, self._challenges, self._live, self._shop)
        (operations,) = self.random.choices(domains, (8, 2, 4, 1, 4, 3))
        with contextlib.suppress(PlazaError):
            await self.random.choice(operations())()
        self.done += 1

    def _social(self) -> list[Operation]:
        posts, relations = self.plaza.get(Posts), self.plaza.get(Relations)
        engagements, comments = self.plaza.get(Engagements), self.plaza.get(Comments)
        who, other = (actor(self.random.choice(NAMES)) for _ in range(2))
        id = self.random.choice(self.community.posts)
        tag = self.random.randrange(3)

        async def write() -> None:
            made = await posts.create(who, NewPost(f"Hello #plaza #t{tag}"))
            self.community.posts.append(made.id)

        async def comment() -> None:
            made = await comments.create(who, id, NewComment("Well"))
            self.community.comments.append(made.id)

        return [
            write,
            comment,
            lambda: engagements.like(who, id),
            lambda: engagements.like(who, id),
            lambda: engagements.unlike(who, id),
            lambda: engagements.bookmark(who, id),
            lambda: engagements.unbookmark(who, id),
            lambda: comments.delete(ADMIN, self.random.choice(self.community.comments)),
            lambda: posts.edit(who, id, PostEdit(f"Changed #t{tag}")),
            lambda: posts.ban(ADMIN, id, on=self.random.random() < 0.5),
            lambda: posts.delete(ADMIN, id),
            lambda: relations.follow(who, other.name),
            lambda: relations.unfollow(who, other.name),
            lambda: relations.block(who, other.name),
            lambda: relations.unblock(who, other.name),
            lambda: relations.mute(who, other.name),
            lambda: relations.unmute(who, other.name),
        ]

    def _users(self) -> list[Operation]:
        name = self.random.choice(self.guests[-4:])
        who = Actor(name, "user")
        users, posts, relations = self.plaza.get(Users), self.plaza.get(Posts), self.plaza.get(Relations)
        engagements = self.plaza.get(Engagements)

        async def register() -> None:
            self.guests.append(f"guest{len(self.guests)}")
            await self.plaza.get(InboundSync).apply("user", [{"username": self.guests[-1], "role": "model"}])

        return [
            register,
            lambda: posts.create(who, NewPost("Just passing #plaza")),
            lambda: engagements.like(who, self.random.choice(self.community.posts)),
            lambda: relations.follow(who, "ana"),
            lambda: users.set_role(ADMIN, name, self.random.choice(("user", "model"))),
            lambda: users.update_profile(actor("ana"), "ana", Profile(display_name=f"Ana {self.random.random()}")),
            lambda: self.plaza.get(Goodbye).delete(ADMIN, name),
        ]

    def _articles(self) -> list[Operation]:
        articles, who = self.plaza.get(Articles), actor(self.random.choice(NAMES))
        id, group = self.random.choice(self.community.articles), self.random.choice(("news", "late"))

        async def write() -> None:
            link = f"https://example.com/{uuid.uuid4()}"
            made = await articles.post(who, NewArticle("New", link, [group]), uuid.uuid4().hex)
            self.community.articles.append(made.id)

        return [
            write,
            lambda: articles.vote(who, id, self.random.choice(("up", "down", None))),
            lambda: articles.vote(who, id, self.random.choice(("up", "down", None))),
            lambda: articles.group(ADMIN, id, group, self.random.choice(("in", "out"))),
            lambda: articles.delete(ADMIN, id),
        ]

    def _challenges(self) -> list[Operation]:
        posts, who = self.plaza.get(ChallengePosts), actor(self.random.choice(NAMES[:3]))
        id, challenge = (
            self.random.choice(self.community.challenge_posts),
            self.random.choice(self.community.challenges),
        )

        async def write() -> None:
            made = await posts.post(who, challenge, NewChallengePost("Done."), uuid.uuid4().hex)
            self.community.challenge_posts.append(made.id)

        return [write, lambda: posts.react(who, id), lambda: posts.remove_reaction(who, id)]

    def _live(self) -> list[Operation]:
        live, name = self.plaza.get(LiveService), self.random.choice(NAMES)
        groups = tuple(self.random.sample(("staff", "press"), self.random.randrange(3)))
        watcher = Viewer(name, f"203.0.113.{self.random.randrange(9)}", self.random.choice(("NZ", "FR")), groups)
        place, session = self.random.choice(("web", "phone")), self.random.choice((None, "S1", "S2"))
        return [
            lambda: live.beat(watcher, "E1", Heartbeat(place, session)),
            lambda: live.beat(watcher, "E1", Heartbeat(place, session)),
            lambda: live.leave(watcher, "E1", LeaveRequest(place, session)),
        ]

    def _shop(self) -> list[Operation]:
        carts, sessions = self.plaza.get(Carts), self.plaza.get(Sessions)
        token, item = self.random.choice(self.tokens), self.random.choice(self.community.items)

        async def login() -> None:
            visit = await self.plaza.get(SignIn).admit(token, self.random.choice(NAMES))
            self.tokens.append(visit.token)

        return [
            login,
            lambda: self.plaza.get(Views).view(token, item),
            lambda: carts.put(token, item, self.random.randrange(5)),
            lambda: carts.put(token, item, self.random.randrange(5)),
            lambda: sessions.logout(token),
        ]


@contextlib.asynccontextmanager
async def storm(
    plaza: Plaza, community: SampleCommunity, *, users: int = 12, seed: int = 1
) -> AsyncIterator[WriteStorm]:
    """Run many users and a worker during the block. The outbox is settled when it ends."""
    running = WriteStorm(plaza, community, seed)
    stop = asyncio.Event()

    async def user() -> None:
        while not stop.is_set():
            await running.run_one()

    worker = asyncio.create_task(plaza.worker.run())
    tasks = [asyncio.create_task(user()) for _ in range(users)]
    try:
        yield running
    finally:
        stop.set()
        await asyncio.gather(*tasks)
        await plaza.core.functions.outbox.drain()
        worker.cancel()
        await asyncio.wait([worker])
