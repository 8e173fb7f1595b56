"""The types of polls. Requests and responses are checked against them, and OpenAPI describes them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

PollId = Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
Text = Annotated[str, Meta(min_length=1, max_length=200)]


class NewPoll(Struct, forbid_unknown_fields=True):
    """A poll to create."""

    question: Text
    options: Annotated[list[Text], Meta(min_length=2, max_length=10)]


class NewPollVote(Struct, forbid_unknown_fields=True):
    """A vote for one option, by its number from 1."""

    option: Annotated[int, Meta(ge=1, le=10)]


class PollOption(Struct, frozen=True):
    text: str
    votes: int


class Poll(Struct, frozen=True):
    """A poll. `vote` is the caller's own option, or null."""

    id: str
    author: str
    question: str
    options: list[PollOption]
    votes: int
    vote: int | None


class PollsPage(Struct, frozen=True):
    polls: list[Poll]
