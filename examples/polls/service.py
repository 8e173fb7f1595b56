"""The operations on polls. Each write is one atomic Lua command."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import uuid4

import msgspec

from examples.polls.keys import POLL, POLL_VOTES, POLLS_POPULAR
from examples.polls.model import NewPoll, Poll, PollOption
from plaza.core.auth import Actor
from plaza.core.errors import NotFound
from plaza.core.functions import Functions

PAGE_POLLS = 20


class Polls:
    """Creates, reads and lists polls, and counts votes."""

    def __init__(self, functions: Functions) -> None:
        self._functions = functions

    async def create(self, actor: Actor, new: NewPoll) -> Poll:
        """Create a poll. One round trip."""
        id = uuid4().hex
        options = msgspec.json.encode(new.options).decode()
        await self._functions.run("polls_create", [POLL(id)], id, actor.name, new.question, options)
        return Poll(id, actor.name, new.question, [PollOption(text, 0) for text in new.options], 0, None)

    async def vote(self, actor: Actor, id: str, option: int | None) -> Poll:
        """Vote for an option, change the vote, or remove it with None. Two round trips."""
        await self._functions.run("polls_vote", [POLL(id), POLL_VOTES(id)], id, actor.name, option or "")
        return await self.read(actor, id)

    async def read(self, viewer: Actor | None, id: str) -> Poll:
        """A poll with its results. One round trip."""
        reply = await self._functions.query("polls_read", [POLL(id), POLL_VOTES(id)], _username(viewer))
        if reply is None:
            raise NotFound("This poll does not exist.", id=id)
        return _poll_from_reply(id, reply)

    async def list_popular(self, viewer: Actor | None) -> list[Poll]:
        """The polls with the most votes. Two round trips."""
        ids = await self._functions.valkey.call("ZRANGE", POLLS_POPULAR(), 0, PAGE_POLLS - 1, "REV")
        keys = [[POLL(id), POLL_VOTES(id)] for id in ids]
        replies = await self._functions.query_each("polls_read", keys, _username(viewer))
        return [_poll_from_reply(id, reply) for id, reply in zip(ids, replies, strict=True) if reply is not None]


def _username(viewer: Actor | None) -> str:
    return "" if viewer is None or viewer.via_key else viewer.name


def _poll_from_reply(id: str, reply: list[Any]) -> Poll:
    author, question, options, vote, *votes = reply
    counts = Counter(map(int, votes))
    texts = msgspec.json.decode(options, type=list[str])
    results = [PollOption(text, counts[number]) for number, text in enumerate(texts, 1)]
    return Poll(id, author, question, results, len(votes), int(vote) if vote else None)
