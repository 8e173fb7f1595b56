"""Invariants of keys that take more than one line to declare, for the audit to check.

Most invariants are declared beside their key (`Key.invariants`). The others are here: a score by a formula, a post
that must be in every feed it belongs to. An `Invariant` is pure: it names what else must be read, and checks the
replies. So the audit can read for thousands of entries at once, and confirm a violation in one atomic step, on one
server or a cluster.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple, Protocol

from msgspec import Struct, field

from plaza.core.keyspace import Key
from plaza.core.valkey import Arg

Command = Sequence[Arg]

# The `repair` of an invariant whose violations are only reported: another service wrote the data, and it stays.
REPORT_ONLY: Final = "-"

# Patterns that mean the same in every catalogue.
COMMON_SHAPES = {
    "ms": r"0|[1-9]\d{0,15}",
    "seconds": r"\d{1,12}(?:\.\d+)?",
    "count": r"0|[1-9]\d{0,15}",
    "number": r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?",
}

_PART = re.compile(r"<(\w+)>")


class Shape:
    """The pattern of a member, field or value; reads the ids in it."""

    def __init__(self, text: str, shapes: Mapping[str, str]) -> None:
        self.parts = tuple(_PART.findall(text))
        self._text, self._shapes = text, shapes

    @cached_property
    def _match(self) -> Callable[[str], re.Match[str] | None]:
        """Compiled when it is first needed: an audit meets few of all keys."""
        known = {**COMMON_SHAPES, **self._shapes}
        return re.compile(_PART.sub(lambda m: f"({known[m[1]]})", self._text), re.DOTALL).fullmatch

    def read(self, text: str) -> tuple[str, ...] | None:
        """Return the ids in a text, or None if it does not match."""
        found = self._match(text)
        return found.groups() if found else None


class Entry(NamedTuple):
    """What an invariant checks: a member of a key, or a key.

    `value` is the member's score or the field's value. For a hash with declared fields it is all of them.
    """

    name: str
    parts: tuple[str, ...]
    member: str = ""
    ids: tuple[str, ...] = ()
    value: Any = None


def _no_reads(entry: Entry) -> Sequence[Command]:
    return ()


Reads = Callable[[Entry], Sequence[Command]]
Check = Callable[[Entry, Sequence[Any], int], str | None]


class Invariant(Struct, frozen=True):
    """What must hold for each member of a key, or with `per_key` for the key.

    `reads` returns what else must be read: commands, and queries as `("QUERY", query, number of keys, key, …, arg, …)`.
    `check` gets the replies and the time (Unix milliseconds) and returns what is wrong, or None. `unless` is read only
    after a violation: if any of these keys exists, an operation in progress explains it. Without a `repair`, the key's
    own is used; `REPORT_ONLY` means none. With `own_keys` it reads only keys of the entry's owner, in one slot.
    """

    name: str
    key: Key
    reads: Reads
    check: Check
    repair: str = ""
    per_key: bool = False
    unless: Reads = _no_reads
    own_keys: bool = False


class Violation(Struct, frozen=True):
    """A violation that an inspector has confirmed."""

    family: str  # the pattern of the key
    rule: str
    key: str
    member: str
    says: str
    repair: str  # in words; empty if it cannot be repaired


# The rule of a violation that says that an inspector could not compare.
NOT_COMPARED: Final = "not compared"


def not_compared(family: str, group: str) -> Violation:
    """Return the violation of a family that was not compared, because a group of consumers does not handle events."""
    says = f"not compared, because events wait for {group}. Check that a worker runs, and audit again after a minute."
    return Violation(family, NOT_COMPARED, family, "", says, "")


def comparison_failed(family: str, error: Exception) -> Violation:
    """Return the violation of a family that was not compared, because something that was read is not valid."""
    says = f"not compared, because of an error that the log shows: {type(error).__name__}: {error}"
    return Violation(family, NOT_COMPARED, "", "", says, "")


class Inspector(Protocol):
    """Checks keys whose source data is not in Valkey."""

    family: str  # of its violations, for one that says that it failed
    checks_valkey: bool  # False: it concerns SQL and files only, which a failover of Valkey does not change

    def inspect(self) -> AsyncIterator[Violation]:
        """Yield the violations that a second check confirms."""

    async def repair(self, fault: Violation) -> None:
        """Repair the key from the current source data."""


class Invariants(Struct, frozen=True):
    """The invariants of a domain beyond those in its catalogue.

    `repairs` maps each repair command, `repair_<name>` in the domain's Lua, to the key that it is called with.
    """

    rules: Sequence[Invariant] = ()
    repairs: Mapping[str, Key] = field(default_factory=dict)
