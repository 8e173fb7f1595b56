"""Exports, deletes and renames the votes of a user."""

from __future__ import annotations

from typing import Any

from examples.polls.keys import POLL, POLL_VOTES, USER_POLLS
from plaza.core.functions import Functions


class PollsPersonalData:
    """A user's votes in polls."""

    def __init__(self, functions: Functions) -> None:
        self._functions = functions
        self._valkey = functions.valkey

    async def export(self, username: str) -> dict[str, Any]:
        """The options that a user voted for, by poll."""
        ids = await self._valkey.call("SMEMBERS", USER_POLLS(username))
        options = await self._valkey.batch([("HGET", POLL_VOTES(id), username) for id in ids])
        return {"poll_votes": {id: int(option) for id, option in zip(ids, options, strict=True) if option}}

    async def delete(self, username: str) -> None:
        """Remove all votes of a user. Repeatable."""
        for id in await self._valkey.call("SMEMBERS", USER_POLLS(username)):
            await self._vote(id, username, "")

    async def rename(self, old: str, new: str) -> None:
        """Move all votes to the new name. Repeatable."""
        for id in await self._valkey.call("SMEMBERS", USER_POLLS(old)):
            option = await self._valkey.call("HGET", POLL_VOTES(id), old)
            if option:
                await self._vote(id, new, option)
            await self._vote(id, old, "")

    async def _vote(self, id: str, username: str, option: str) -> None:
        await self._functions.run("polls_vote", [POLL(id), POLL_VOTES(id)], id, username, option)
