"""Challenges over HTTP."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from plaza.challenges.daily_job import Roll, Rolled
from plaza.challenges.model import (
    Challenge,
    ChallengeId,
    ChallengesPage,
    Membership,
    NewChallenge,
    NewPost,
    NewTracking,
    Post,
    PostId,
    PostsPage,
    Reaction,
    Tracked,
)
from plaza.challenges.posts import Posts
from plaza.challenges.recommendation.recommender import Recommendations, Recommender
from plaza.challenges.service import Challenges
from plaza.core.auth import Actor
from plaza.core.http.access import ADMIN, PUBLIC, USER
from plaza.core.http.request import Request
from plaza.core.http.routes import Routes
from plaza.core.paging import Page

Limit = Annotated[int, Meta(ge=1, le=100, description="How many at most.")]

route = Routes("challenges", about="Challenges in five categories, and what their members tell.")


@route.post("/challenges", access=USER, status=201, idempotent=True)
async def create(actor: Actor, body: NewChallenge, request: Request, challenges: Challenges) -> Challenge:
    """Start a challenge of so many days. Creating does not join."""
    return await challenges.create(actor, body, request.operation)


@route.get("/challenges", access=PUBLIC)
async def page(actor: Actor | None, page: Page, challenges: Challenges) -> ChallengesPage:
    """Challenges, the newest first: public ones and one's own."""
    return await challenges.page(actor, page)


@route.get("/challenges/recommendations", access=USER)
async def recommendations(actor: Actor, recommender: Recommender, limit: Limit = 20) -> Recommendations:
    """Recent posts for the caller, each with the reason why."""
    return await recommender.recommend(actor, limit)


@route.get("/challenges/{id}", access=PUBLIC)
async def read(actor: Actor | None, id: ChallengeId, challenges: Challenges) -> Challenge:
    """One challenge; a private one only to its creator, its members and admins."""
    return await challenges.read(actor, id)


@route.post("/challenges/{id}/join", access=USER, status=201, idempotent=True)
async def join(actor: Actor, id: ChallengeId, challenges: Challenges) -> Membership:
    """Take part; twice is 409, and a private one is for its creator and admins."""
    return await challenges.join(actor, id)


@route.delete("/challenges/{id}/join", access=USER)
async def leave(actor: Actor, id: ChallengeId, challenges: Challenges) -> Membership:
    """Take part no longer. Tracked days stay."""
    return await challenges.leave(actor, id)


@route.post("/challenges/{id}/track", access=USER, status=201, idempotent=True)
async def track(actor: Actor, id: ChallengeId, body: NewTracking, challenges: Challenges) -> Tracked:
    """Note a day of progress, today's if none is given; each day once."""
    return await challenges.track(actor, id, body)


@route.post("/challenges/{id}/posts", access=USER, status=201, idempotent=True)
async def post(actor: Actor, id: ChallengeId, body: NewPost, request: Request, posts: Posts) -> Post:
    """Post in a challenge that one is a member of."""
    return await posts.post(actor, id, body, request.operation)


@route.get("/challenges/{id}/posts", access=PUBLIC)
async def page_of_posts(actor: Actor | None, id: ChallengeId, page: Page, posts: Posts) -> PostsPage:
    """A challenge's posts, the newest first."""
    return await posts.page(actor, id, page)


@route.put("/challenges/posts/{id}/reaction", access=USER)
async def react(actor: Actor, id: PostId, posts: Posts) -> Reaction:
    """React to a post. A second reaction changes nothing; a break takes none."""
    return await posts.react(actor, id)


@route.delete("/challenges/posts/{id}/reaction", access=USER)
async def take_back(actor: Actor, id: PostId, posts: Posts) -> Reaction:
    """Take a reaction back."""
    return await posts.take_back(actor, id)


@route.post("/challenges/roll", access=ADMIN)
async def roll(roll: Roll) -> Rolled:
    """Run the daily job now, and answer when it is done: for admins."""
    return await roll.run()
