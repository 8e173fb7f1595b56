"""Keeps the demo community alive: every few seconds somebody likes, posts, votes, tracks a day or looks at something.

Each step stands for itself and remembers nothing, so that any worker can do the next one. Whoever acts is looked up
first: a person whom an admin has removed or suspended does nothing any more. What is refused (a post deleted
meanwhile, a day tracked already) is left at that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random
from typing import Any, Final, TypeVar
from uuid import uuid4

from plaza.articles.keys import ARTICLES_BY_TIME
from plaza.articles.service import Articles
from plaza.caching.keys import ITEM_VIEWS
from plaza.challenges.model import CATEGORY_NAMES, NewChallengePost, NewTracking
from plaza.challenges.posts import ChallengePosts
from plaza.challenges.service import Challenges
from plaza.core.auth import Actor
from plaza.core.domain import Core
from plaza.core.errors import NotFound, PlazaError, Unavailable
from plaza.core.paging import Page
from plaza.demo.audience import DemoAudience
from plaza.demo.phrases import bank, fill
from plaza.demo.users import CommunityUsers, DemoUser
from plaza.live.service import LiveService
from plaza.shop.views import Views
from plaza.social.comments import Comments
from plaza.social.engagements import Engagements
from plaza.social.keys import EXPLORE_FEED, USER
from plaza.social.model import NewComment, NewPost
from plaza.social.posts import Posts
from plaza.social.relations import Relations

T = TypeVar("T")

TICK_SECONDS: Final = 3.0

# How many of the newest posts and articles people still react to.
RECENT: Final = 60
# Guests who look around in the shop, and keep their sessions.
GUESTS: Final = 6


class DemoSimulation:
    """One step at a time."""

    def __init__(self, core: Core, services: Mapping[type, Any], dice: Random | None = None) -> None:
        self._valkey = core.valkey
        self._dice = dice or Random()
        self._people = CommunityUsers().people
        self._posts: Posts = services[Posts]
        self._engagements: Engagements = services[Engagements]
        self._comments: Comments = services[Comments]
        self._follows: Relations = services[Relations]
        self._articles: Articles = services[Articles]
        self._challenges: Challenges = services[Challenges]
        self._told: ChallengePosts = services[ChallengePosts]
        self._views: Views = services[Views]
        self._audience = DemoAudience(services[LiveService], core.clock)
        self._guests: list[str] = []

    async def step(self) -> str:
        """A few seconds of life. Returns what was done, for operators."""
        done = [f"{await self._audience.beat()} beats"]
        for name, chance, act in self._acts():
            if self._dice.random() < chance:
                person = await self._somebody()
                if person is not None and await self._try(act, person):
                    done.append(name)
        return ", ".join(done)

    def _acts(self) -> tuple[tuple[str, float, Callable[[DemoUser, Actor], Awaitable[object]]], ...]:
        """What people do, and how likely it is in each step: a post every minute, a like every four seconds."""
        return (
            ("like", 0.75, self._like),
            ("post", 0.05, self._post),
            ("comment", 0.09, self._comment),
            ("follow", 0.02, self._follow),
            ("vote", 0.25, self._vote),
            ("day", 0.03, self._track),
            ("story", 0.01, self._tell),
            ("reaction", 0.05, self._react),
            ("view", 0.5, self._look),
        )

    async def _somebody(self) -> DemoUser | None:
        person = self._one(self._people, 1.3)
        role, suspended = await self._valkey.call("HMGET", USER(person.username), "role", "suspended_at")
        return None if role is None or suspended is not None else person

    async def _try(self, act: Callable[[DemoUser, Actor], Awaitable[object]], person: DemoUser) -> bool:
        try:
            await act(person, Actor(person.username, "user"))
        except Unavailable:
            raise
        except PlazaError:
            return False
        return True

    async def _recent(self, key: str) -> str:
        """One of the newest members, the very newest most often."""
        found: list[str] = await self._valkey.call("ZRANGE", key, 0, RECENT - 1, "REV")
        return self._one(found, 2)

    def _one(self, things: Sequence[T], preference: float = 1) -> T:
        """One of some things, the first more often the higher the preference."""
        if not things:
            raise NotFound("There is nothing to choose from.")
        return things[int(len(things) * self._dice.random() ** preference)]

    async def _like(self, person: DemoUser, actor: Actor) -> object:
        return await self._engagements.like(actor, await self._recent(EXPLORE_FEED()))

    async def _post(self, person: DemoUser, actor: Actor) -> object:
        _, text = person.topic.post(self._dice)
        return await self._posts.create(actor, NewPost(text))

    async def _comment(self, person: DemoUser, actor: Actor) -> object:
        id = await self._recent(EXPLORE_FEED())
        author = (await self._posts.get(actor, id)).username
        about = next((one.topic for one in self._people if one.username == author), person.topic)
        return await self._comments.create(actor, id, NewComment(about.comment(self._dice)))

    async def _follow(self, person: DemoUser, actor: Actor) -> object:
        return await self._follows.follow(actor, self._one(self._people).username)

    async def _vote(self, person: DemoUser, actor: Actor) -> object:
        id = int((await self._recent(ARTICLES_BY_TIME())).partition(":")[2])
        return await self._articles.vote(actor, id, "up" if self._dice.random() < 0.85 else "down")

    async def _challenge(self, actor: Actor) -> Any:
        return self._one((await self._challenges.page(actor, Page(limit=20))).challenges)

    async def _track(self, person: DemoUser, actor: Actor) -> object:
        return await self._challenges.track(actor, (await self._challenge(actor)).id, NewTracking())

    async def _tell(self, person: DemoUser, actor: Actor) -> object:
        challenge = await self._challenge(actor)
        words = bank("challenges")
        sentence = self._dice.choice(words["posts"][CATEGORY_NAMES[challenge.category - 1]])
        new = NewChallengePost(fill(sentence, words["slots"], self._dice))
        return await self._told.post(actor, challenge.id, new, uuid4().hex)

    async def _react(self, person: DemoUser, actor: Actor) -> object:
        challenge = await self._challenge(actor)
        told = (await self._told.page(actor, challenge.id, Page(limit=10))).posts
        return await self._told.react(actor, self._one(told).id)

    async def _look(self, person: DemoUser, actor: Actor) -> object:
        """A guest looks at an item: at a popular one rather than another."""
        items: list[str] = await self._valkey.call("ZRANGE", ITEM_VIEWS(), 0, RECENT - 1)
        guest = None if len(self._guests) < GUESTS else self._one(self._guests)
        visit, seen = await self._views.view(guest, int(self._one(items, 1.5)))
        if guest is None:
            self._guests.append(visit.token)
        return seen
