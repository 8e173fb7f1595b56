"""Finds a user's latest comment in a thread: by the user's index of comments, not by the thread, which may be long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from plaza.core.number_parsing import parse_int
from plaza.core.valkey import Valkey

# A user's newest comments that are searched for one in the thread; if none is, the second number.
COMMENTS_SEARCHED: Final = (50, 1_000)


class CommentSearch(Struct, frozen=True):
    """Where to look: a user's comments and a thread, both sorted sets by creation time in milliseconds."""

    own: str  # key of the user's comments
    thread: str  # key of the comments of a thread
    known: str = ""  # a comment that may not be in the user's index yet
    member: Callable[[str], str | None] = lambda id: id  # how the thread names a comment of the user; None: not at all


async def latest_comments(valkey: Valkey, searches: Sequence[CommentSearch]) -> list[int | None]:
    """Return when each user last wrote one of the comments, Unix milliseconds. Two round trips, seldom four."""
    times: list[int | None] = [None] * len(searches)
    left = list(range(len(searches)))
    for limit in COMMENTS_SEARCHED:
        written = await valkey.batch([("ZRANGE", searches[index].own, 0, limit - 1, "REV") for index in left])
        scores = await valkey.batch(
            [
                ("ZMSCORE", searches[index].thread, *_members(searches[index], own))
                for index, own in zip(left, written, strict=True)
            ]
        )
        for index, found in zip(left, scores, strict=True):
            times[index] = max((at for score in found if (at := parse_int(score, None)) is not None), default=None)
        left = [index for index, own in zip(left, written, strict=True) if times[index] is None and len(own) == limit]
        if not left:
            break
    return times


def _members(search: CommentSearch, own: Sequence[str]) -> list[str]:
    """Return the names of comments in the thread, at least one."""
    named = [search.member(id) for id in own]
    return [search.known or "-", *(name for name in named if name is not None)]
