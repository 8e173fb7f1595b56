"""What a domain offers to reports: the things of one kind that users can report."""

from __future__ import annotations

from typing import Protocol

import msgspec

from plaza.core.auth import Actor


class ReportedThing(msgspec.Struct, kw_only=True, frozen=True):
    """A thing as the queue shows it."""

    author: str  # username; of a user, the user's own
    text: str
    url: str  # of its page
    state: str = ""  # `banned` or `suspended`; empty if nothing was done with it


class ReportSource(Protocol):
    """The things of one kind."""

    @property
    def kind(self) -> str:
        """The `subject` of a report, such as `post`."""

    @property
    def removal(self) -> str:
        """How an admin removes such a thing: `ban` or `delete`; empty if it cannot be removed."""

    async def find(self, viewer: Actor, id: str) -> ReportedThing:
        """Return a thing that the viewer can see. Raises `NotFound`, or `Invalid` for what is no id."""

    async def remove(self, admin: Actor, id: str) -> None:
        """Ban or delete a thing. Raises `NotFound` if it is gone."""
