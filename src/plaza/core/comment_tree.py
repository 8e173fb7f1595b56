"""Comments as a tree, for the domains that have them: the keys of a tree, and pages of its lists.

`comment_tree.lua` changes the tree; a domain's library uses `LIBRARY` as its base.
"""

from __future__ import annotations

import asyncio
import heapq
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Final, NamedTuple

from msgspec import Meta, Struct

from plaza.core import paging
from plaza.core.functions import Functions, Library
from plaza.core.keys import CATALOGUE
from plaza.core.paging import FetchIds, Position, list_checksum
from plaza.core.sequences import pairs
from plaza.core.text_patterns import VISIBLE_TEXT
from plaza.core.validation_messages import described_pattern

# Stubs removed in one command: a chain of deleted comments disappears in steps, so that Valkey never stops for it.
PRUNE_BATCH: Final = 100
# Old texts of a post or a comment that are kept. With 40 KB each, those of a post take at most 2 MB.
MAX_EDITS: Final = 50

LIBRARY: Final = Library.read(
    "comment_tree",
    CATALOGUE,
    "plaza.core",
    "comment_tree",
    base=paging.LIBRARY,
    constants={"COMMENT_PRUNE_BATCH": PRUNE_BATCH, "COMMENT_MAX_EDITS": MAX_EDITS},
)

UUID: Final = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"

_UUID: Final = re.compile(UUID)


def is_uuid(text: str) -> bool:
    """Whether a text is a UUID in lower case, the id of a post or a comment on it."""
    return _UUID.fullmatch(text) is not None


MAX_COMMENT_CHARACTERS: Final = 2_000
CommentText = Annotated[str, Meta(min_length=1, max_length=MAX_COMMENT_CHARACTERS, pattern=VISIBLE_TEXT)]

# `?reply_to=` of a list of comments: the replies to one comment, or the comments that reply to none.
TOP_LEVEL: Final = "none"


def reply_to_parameter(id_pattern: str) -> Meta:
    """Describe the parameter `reply_to` of a list of comments whose ids match a pattern."""
    return Meta(
        pattern=described_pattern("Must be the id of a comment, or `none`", rf"^({id_pattern}|{TOP_LEVEL})$(?!\n)"),
        description="List the replies to this comment only; `none` lists the comments that reply to no other.",
        examples=[TOP_LEVEL],
    )


class TreeKeys(Struct, frozen=True):
    """The names of the keys of one owner's comments. `comment_tree.lua` says what each contains."""

    all: str
    parents: str
    stubs: str
    top: str
    replies: Callable[[str], str]


class CommentState(NamedTuple):
    """How many replies a comment has. `stub_created_ms` is None unless it was deleted and has replies."""

    replies: int
    stub_created_ms: int | None


class CommentTrees:
    """Reads trees of comments through a domain's library."""

    def __init__(self, functions: Functions, library: str) -> None:
        self._functions = functions
        self._query = f"{library}_comment_states"

    async def states(self, keys: TreeKeys, comments: Sequence[str]) -> list[CommentState]:
        """Return the state of each comment. One round trip."""
        names = [keys.stubs, *map(keys.replies, comments)]
        reply = await self._functions.query(self._query, names, *comments) if comments else []
        return [CommentState(int(count), int(float(at)) if at else None) for count, at in pairs(reply)]

    def everything(self, keys: TreeKeys) -> FetchIds[Position]:
        """Read all comments and stubs, oldest first, for `page_by_position(keys.all, …)`. One round trip."""
        return self._merged(keys.all, [keys.all, keys.stubs])

    def top(self, keys: TreeKeys, *, has_replies: bool) -> FetchIds[Position]:
        """Read the comments and stubs that reply to none, for `page_by_position(keys.top, …)`. One round trip."""
        return self._merged(keys.top, [keys.top if has_replies else keys.all])

    def replies(self, keys: TreeKeys, comment: str) -> FetchIds[Position]:
        """Read the replies to a comment, for `page_by_position(keys.replies(comment), …)`. One round trip."""
        name = keys.replies(comment)
        return self._merged(name, [name])

    def _merged(self, name: str, sets: Sequence[str]) -> FetchIds[Position]:
        """Read several sorted sets as one list, oldest first, however long they are."""
        checksum = list_checksum(name)

        async def after(start: Position | None, count: int) -> list[tuple[str, Position]]:
            position = ("", "") if start is None else (repr(start.score), start.id)
            query = self._functions.query
            found = await asyncio.gather(*(query("paging_after", [key], *position, count, "oldest") for key in sets))
            # A sorted set orders equal scores by the bytes of its members.
            ordered = heapq.merge(*([(float(score), id) for id, score in pairs(rows)] for rows in found))
            return [(id, Position(checksum, score, id)) for score, id in list(ordered)[:count]]

        return after
