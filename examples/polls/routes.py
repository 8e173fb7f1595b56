"""The HTTP routes of polls."""

from __future__ import annotations

from examples.polls.model import NewPoll, NewPollVote, Poll, PollId, PollsPage
from examples.polls.service import Polls
from plaza.core.auth import Actor
from plaza.core.http.access import PUBLIC, USER
from plaza.core.http.routes import Routes

route = Routes("polls", about="Questions that users vote on.")


@route.post("/polls", access=USER, status=201, idempotent=True)
async def create_poll(actor: Actor, body: NewPoll, polls: Polls) -> Poll:
    """Create a poll."""
    return await polls.create(actor, body)


@route.get("/polls", access=PUBLIC)
async def list_popular_polls(actor: Actor | None, polls: Polls) -> PollsPage:
    """List the polls with the most votes."""
    return PollsPage(await polls.list_popular(actor))


@route.get("/polls/{id}", access=PUBLIC)
async def get_poll(actor: Actor | None, id: PollId, polls: Polls) -> Poll:
    """Read a poll and its results."""
    return await polls.read(actor, id)


@route.put("/polls/{id}/vote", access=USER)
async def vote_in_poll(actor: Actor, id: PollId, body: NewPollVote, polls: Polls) -> Poll:
    """Vote in a poll, or change the vote."""
    return await polls.vote(actor, id, body.option)


@route.delete("/polls/{id}/vote", access=USER)
async def remove_poll_vote(actor: Actor, id: PollId, polls: Polls) -> Poll:
    """Remove the caller's vote."""
    return await polls.vote(actor, id, None)
