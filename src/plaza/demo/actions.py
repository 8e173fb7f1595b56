"""What the users of the demo do: like, post, comment, follow, vote, track a day, react or view an item."""

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
from plaza.challenges.tracking import ChallengeTracking
from plaza.core.auth import Actor
from plaza.core.domain import Core
from plaza.core.errors import NotFound
from plaza.core.paging import Page
from plaza.core.valkey import Valkey
from plaza.demo.phrases import fill_slots, read_texts
from plaza.demo.users import CommunityUsers, DemoUser
from plaza.shop.model import is_item_id
from plaza.shop.views import Views
from plaza.social.comments import Comments
from plaza.social.engagements import Engagements
from plaza.social.keys import EXPLORE_FEED
from plaza.social.model import NewComment, NewPost
from plaza.social.posts import Posts
from plaza.social.relations import Relations

T = TypeVar("T")
DemoAction = Callable[[DemoUser, Actor], Awaitable[object]]

# Users react to this many of the newest posts and articles.
RECENT_ITEMS: Final = 60
# Guests of the shop, who keep their sessions.
MAX_GUESTS: Final = 6
# Texts drawn until one belongs to the user.
MAX_DRAWS: Final = 60


class RandomChoices:
    """Chooses at random, the first or newest more often."""

    def __init__(self, valkey: Valkey, rng: Random) -> None:
        self._valkey = valkey
        self._rng = rng

    async def choose_recent(self, key: str) -> str:
        """Return one of the newest members, newer ones more often."""
        found: list[str] = await self._valkey.call("ZRANGE", key, 0, RECENT_ITEMS - 1, "REV")
        return self.choose(found, 2)

    def choose(self, items: Sequence[T], preference: float = 1) -> T:
        """Return one item; a higher preference chooses the first ones more often."""
        if not items:
            raise NotFound("There is nothing to choose from.")
        return items[int(len(items) * self._rng.random() ** preference)]


class DemoActions:
    """The actions. Each raises the error of its service if it is refused."""

    def __init__(self, core: Core, services: Mapping[type, Any], choices: RandomChoices, rng: Random) -> None:
        self._valkey = core.valkey
        self._choices = choices
        self._rng = rng
        self._community = CommunityUsers()
        self._posts: Posts = services[Posts]
        self._engagements: Engagements = services[Engagements]
        self._comments: Comments = services[Comments]
        self._follows: Relations = services[Relations]
        self._articles: Articles = services[Articles]
        self._challenges: Challenges = services[Challenges]
        self._tracking: ChallengeTracking = services[ChallengeTracking]
        self._challenge_posts: ChallengePosts = services[ChallengePosts]
        self._views: Views = services[Views]
        self._guests: list[str] = []

    def weighted(self) -> tuple[tuple[str, float, DemoAction], ...]:
        """Return the actions and their probability per step: about a post a minute and a like every four seconds."""
        return (
            ("like", 0.75, self._like),
            ("post", 0.05, self._post),
            ("comment", 0.2, self._comment),
            ("follow", 0.02, self._follow),
            ("vote", 0.25, self._vote),
            ("day", 0.03, self._track),
            ("story", 0.01, self._post_in_challenge),
            ("reaction", 0.05, self._react),
            ("view", 0.5, self._view_item),
        )

    async def _like(self, user: DemoUser, actor: Actor) -> object:
        return await self._engagements.like(actor, await self._choices.choose_recent(EXPLORE_FEED()))

    async def _post(self, user: DemoUser, actor: Actor) -> object:
        about, users = user.topic, self._community
        own = [each for each in about.posts if users.users[users.author(about, each)].username == user.username]
        return await self._posts.create(actor, NewPost(about.post(self._choices.choose(own), self._rng)))

    def _own_text(self, user: DemoUser, draw: Callable[[], str]) -> str:
        """Return a text that belongs to the user: no two users say the same."""
        users = self._community
        for _ in range(MAX_DRAWS):
            text = draw()
            if users.name(users.speaker(text)) == user.username:
                return text
        raise NotFound("The user has nothing to say.")

    async def _comment(self, user: DemoUser, actor: Actor) -> object:
        id = await self._choices.choose_recent(EXPLORE_FEED())
        author = (await self._posts.get(actor, id)).username
        about = next((other.topic for other in self._community.users if other.username == author), user.topic)
        return await self._comments.create(
            actor, id, NewComment(self._own_text(user, lambda: about.comment(self._rng)))
        )

    async def _follow(self, user: DemoUser, actor: Actor) -> object:
        return await self._follows.follow(actor, self._choices.choose(self._community.users).username)

    async def _vote(self, user: DemoUser, actor: Actor) -> object:
        _, _, id = (await self._choices.choose_recent(ARTICLES_BY_TIME())).partition(":")
        if not id.isdecimal():  # another service's
            raise NotFound("There is no article to vote for.")
        return await self._articles.vote(actor, int(id), "up" if self._rng.random() < 0.85 else "down")

    async def _choose_challenge(self, actor: Actor) -> Any:
        return self._choices.choose((await self._challenges.page(actor, Page(limit=20))).challenges)

    async def _track(self, user: DemoUser, actor: Actor) -> object:
        return await self._tracking.track(actor, (await self._choose_challenge(actor)).id, NewTracking())

    async def _post_in_challenge(self, user: DemoUser, actor: Actor) -> object:
        challenge = await self._choose_challenge(actor)
        words = read_texts("challenges")
        sentences = words["posts"][CATEGORY_NAMES[challenge.category - 1]]
        sentence = self._own_text(user, lambda: self._rng.choice(sentences))
        new = NewChallengePost(fill_slots(sentence, words["slots"], self._rng))
        return await self._challenge_posts.post(actor, challenge.id, new, uuid4().hex)

    async def _react(self, user: DemoUser, actor: Actor) -> object:
        challenge = await self._choose_challenge(actor)
        posts = (await self._challenge_posts.page(actor, challenge.id, Page(limit=10))).posts
        return await self._challenge_posts.react(actor, self._choices.choose(posts).id)

    async def _view_item(self, user: DemoUser, actor: Actor) -> object:
        """View an item as a guest, popular items more often."""
        members: list[str] = await self._valkey.call("ZRANGE", ITEM_VIEWS(), 0, RECENT_ITEMS - 1)
        items = [member for member in members if is_item_id(member)]
        guest = None if len(self._guests) < MAX_GUESTS else self._choices.choose(self._guests)
        visit, seen = await self._views.view(guest, int(self._choices.choose(items, 1.5)))
        if guest is None:
            self._guests.append(visit.token)
        return seen
