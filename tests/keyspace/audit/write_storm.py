"""People who do everything at once, in all five domains, until they are told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import random
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable

from plaza.app import Plaza
from plaza.articles.model import NewArticle
from plaza.articles.service import Articles
from plaza.challenges.model import NewPost as NewChallengePost
from plaza.challenges.posts import Posts as ChallengePosts
from plaza.core.auth import Actor
from plaza.core.errors import PlazaError
from plaza.live.model import Heartbeat, LeaveRequest, Viewer
from plaza.live.service import LiveService
from plaza.shop.carts import Carts
from plaza.shop.model import Login
from plaza.shop.sessions import Sessions
from plaza.shop.views import Views
from plaza.social.deletion import Leaving as Goodbye
from plaza.social.model import NewComment, NewPost, PostEdit, Profile
from plaza.social.posts import Posts
from plaza.social.sync import Sync
from plaza.social.users import People
from tests.keyspace.audit.sample_community import ADMIN, NAMES, Town, actor

Act = Callable[[], Awaitable[object]]


class Storm:
    """Does one thing after another, with dice."""

    def __init__(self, plaza: Plaza, town: Town, seed: int) -> None:
        self.plaza = plaza
        self.town = town
        self.dice = random.Random(seed)
        self.tokens = [town.guest, town.token]
        self.passing = ["guest0"]  # people who come and go, each once
        self.done = 0

    async def one(self) -> None:
        domains = (self._social, self._people, self._articles, self._challenges, self._live, self._shop)
        (acts,) = self.dice.choices(domains, (8, 2, 4, 1, 4, 3))
        with contextlib.suppress(PlazaError):
            await self.dice.choice(acts())()
        self.done += 1

    def _social(self) -> list[Act]:
        posts, people = self.plaza.get(Posts), self.plaza.get(People)
        who, other = (actor(self.dice.choice(NAMES)) for _ in range(2))
        id = self.dice.choice(self.town.posts)
        tag = self.dice.randrange(3)

        async def write() -> None:
            made = await posts.create(who, NewPost(f"Hello #plaza #t{tag}"))
            self.town.posts.append(made.id)

        async def comment() -> None:
            made = await posts.comment(who, id, NewComment("Well"))
            self.town.comments.append(made.id)

        return [
            write,
            comment,
            lambda: posts.like(who, id),
            lambda: posts.like(who, id),
            lambda: posts.unlike(who, id),
            lambda: posts.bookmark(who, id),
            lambda: posts.unbookmark(who, id),
            lambda: posts.uncomment(ADMIN, self.dice.choice(self.town.comments)),
            lambda: posts.edit(who, id, PostEdit(f"Changed #t{tag}")),
            lambda: posts.ban(ADMIN, id, on=self.dice.random() < 0.5),
            lambda: posts.delete(ADMIN, id),
            lambda: people.follow(who, other.name),
            lambda: people.unfollow(who, other.name),
            lambda: people.block(who, other.name),
            lambda: people.unblock(who, other.name),
            lambda: people.mute(who, other.name),
            lambda: people.unmute(who, other.name),
        ]

    def _people(self) -> list[Act]:
        name = self.dice.choice(self.passing[-4:])
        who = Actor(name, "user")
        people, posts = self.plaza.get(People), self.plaza.get(Posts)

        async def arrive() -> None:
            self.passing.append(f"guest{len(self.passing)}")
            await self.plaza.get(Sync).take("user", [{"username": self.passing[-1], "role": "model"}])

        return [
            arrive,
            lambda: posts.create(who, NewPost("Just passing #plaza")),
            lambda: posts.like(who, self.dice.choice(self.town.posts)),
            lambda: people.follow(who, "ana"),
            lambda: people.give_role(ADMIN, name, self.dice.choice(("user", "model"))),
            lambda: people.change(actor("ana"), "ana", Profile(display_name=f"Ana {self.dice.random()}")),
            lambda: self.plaza.get(Goodbye).leave(ADMIN, name),
        ]

    def _articles(self) -> list[Act]:
        articles, who = self.plaza.get(Articles), actor(self.dice.choice(NAMES))
        id, group = self.dice.choice(self.town.articles), self.dice.choice(("news", "late"))

        async def write() -> None:
            link = f"https://example.com/{uuid.uuid4()}"
            made = await articles.post(who, NewArticle("New", link, [group]), uuid.uuid4().hex)
            self.town.articles.append(made.id)

        return [
            write,
            lambda: articles.vote(who, id, self.dice.choice(("up", "down", None))),
            lambda: articles.vote(who, id, self.dice.choice(("up", "down", None))),
            lambda: articles.group(ADMIN, id, group, self.dice.choice(("in", "out"))),
            lambda: articles.delete(ADMIN, id),
        ]

    def _challenges(self) -> list[Act]:
        posts, who = self.plaza.get(ChallengePosts), actor(self.dice.choice(NAMES[:3]))
        id, challenge = self.dice.choice(self.town.challenge_posts), self.dice.choice(self.town.challenges)

        async def write() -> None:
            made = await posts.post(who, challenge, NewChallengePost("Done."), uuid.uuid4().hex)
            self.town.challenge_posts.append(made.id)

        return [write, lambda: posts.react(who, id), lambda: posts.take_back(who, id)]

    def _live(self) -> list[Act]:
        live, name = self.plaza.get(LiveService), self.dice.choice(NAMES)
        groups = tuple(self.dice.sample(("staff", "press"), self.dice.randrange(3)))
        watcher = Viewer(name, f"203.0.113.{self.dice.randrange(9)}", self.dice.choice(("NZ", "FR")), groups)
        place, session = self.dice.choice(("web", "phone")), self.dice.choice((None, "S1", "S2"))
        return [
            lambda: live.beat(watcher, "E1", Heartbeat(place, session)),
            lambda: live.beat(watcher, "E1", Heartbeat(place, session)),
            lambda: live.leave(watcher, "E1", LeaveRequest(place, session)),
        ]

    def _shop(self) -> list[Act]:
        carts, sessions = self.plaza.get(Carts), self.plaza.get(Sessions)
        token, item = self.dice.choice(self.tokens), self.dice.choice(self.town.items)

        async def login() -> None:
            visit = await sessions.login(token, Login(self.dice.choice(NAMES), "anything"))
            self.tokens.append(visit.token)

        return [
            login,
            lambda: self.plaza.get(Views).view(token, item),
            lambda: carts.put(token, item, self.dice.randrange(5)),
            lambda: carts.put(token, item, self.dice.randrange(5)),
            lambda: sessions.logout(token),
        ]


@contextlib.asynccontextmanager
async def storm(plaza: Plaza, town: Town, *, people: int = 12, seed: int = 1) -> AsyncIterator[Storm]:
    """Many people and a worker, for as long as the block runs. Everything is settled when it ends."""
    blowing = Storm(plaza, town, seed)
    over = asyncio.Event()

    async def person() -> None:
        while not over.is_set():
            await blowing.one()

    worker = asyncio.create_task(plaza.worker.run())
    crowd = [asyncio.create_task(person()) for _ in range(people)]
    try:
        yield blowing
    finally:
        over.set()
        await asyncio.gather(*crowd)
        await plaza.core.functions.outbox.drain()
        worker.cancel()
        await asyncio.wait([worker])
