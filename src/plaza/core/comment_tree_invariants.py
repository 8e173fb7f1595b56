"""The invariants of a tree of comments (`comment_tree.lua`), for the domains that have one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from plaza.core.invariants import Command, Entry, Invariant
from plaza.core.keyspace import Key


class TreeFamilies(Struct, frozen=True):
    """The families of keys of a tree. The owner is the first part of each name."""

    all: Key
    parents: Key
    replies: Key
    stubs: Key
    top: Key

    def invariants(self, repair: str) -> list[Invariant]:
        """Return the invariants of all families; `repair` is for a member of `all`, the others declare their own."""
        return [
            Invariant("thread", self.all, self._reads_place, self._check_comment, repair),
            Invariant("thread", self.parents, self._reads_reply, self._check_reply),
            Invariant("thread", self.replies, self._reads_listed_reply, self._check_listed_reply),
            Invariant("thread", self.stubs, self._reads_stub, self._check_stub),
            Invariant("thread", self.top, self._reads_place, self._check_top),
        ]

    def _exists(self, owner: str, comment: str) -> list[Command]:
        return [("ZSCORE", self.all(owner), comment), ("ZSCORE", self.stubs(owner), comment)]

    def _reads_place(self, entry: Entry) -> Sequence[Command]:
        owner, comment = entry.parts[0], entry.ids[0]
        place = [("HGET", self.parents(owner), comment), ("EXISTS", self.parents(owner))]
        return [*place, ("ZSCORE", self.top(owner), comment), *self._exists(owner, comment)]

    def _check_comment(self, entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        parent, has_replies, top, *_ = replies
        if has_replies and parent is None and top is None:
            return f"has {entry.member}, which is on no level of the thread"
        return None

    def _check_top(self, entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        parent, has_replies, _, created, stub = replies
        if parent is not None or not has_replies:
            return f"has {entry.member}, but " + (f"it replies to {parent}" if parent else "there are no replies")
        return _check_time(entry, created if created is not None else stub)

    def _reads_reply(self, entry: Entry) -> Sequence[Command]:
        owner, comment = entry.parts[0], entry.ids[0]
        return [("ZSCORE", self.replies(owner, entry.value), comment), *self._exists(owner, comment)]

    def _check_reply(self, entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        listed, created, stub = replies
        if created is None and stub is None:
            return f"has {entry.member}, which does not exist"
        return f"has {entry.member}, which is missing in the replies to {entry.value}" if listed is None else None

    def _reads_listed_reply(self, entry: Entry) -> Sequence[Command]:
        (owner, parent), comment = entry.parts, entry.ids[0]
        up = ("HGET", self.parents(owner), comment)
        return [up, *self._exists(owner, comment), *self._exists(owner, parent)]

    def _check_listed_reply(self, entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        replies_to, created, stub, *parent = replies
        if replies_to != entry.parts[1]:
            return f"has {entry.member}, which replies to {replies_to}"
        if parent == [None, None]:
            return f"has {entry.member}, which replies to a comment that does not exist"
        return _check_time(entry, created if created is not None else stub)

    def _reads_stub(self, entry: Entry) -> Sequence[Command]:
        owner, comment = entry.parts[0], entry.ids[0]
        return [("EXISTS", self.replies(owner, comment)), ("ZSCORE", self.all(owner), comment)]

    def _check_stub(self, entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        if replies[1] is not None:
            return f"has {entry.member}, which is not deleted"
        return None if replies[0] else f"has {entry.member}, which has no replies"


def _check_time(entry: Entry, created: float | None) -> str | None:
    if created is None:
        return f"has {entry.member}, which does not exist"
    return None if created == entry.value else f"has {entry.member} at {entry.value:.0f}, expected {created:.0f}"
