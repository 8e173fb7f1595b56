"""What is always true of keys and takes more than a line to say, for the audit to check.

Most truths stand beside their key (`Key.same`). A rule is for the rest: a score by a formula, a post that must stand in
every feed it belongs in. It is pure: it says what else must be read, and judges by what came back. So the audit can ask
for thousands at a time, ask again in one atomic step before it says that something is wrong, and do so on one server or
a cluster, and no rule knows of any of that.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from plaza.core.keyspace import Key
from plaza.core.valkey import Arg

Command = Sequence[Arg]

# Shapes that mean the same in every catalogue.
COMMON = {
    "ms": r"0|[1-9]\d{0,15}",
    "seconds": r"\d{1,12}(?:\.\d+)?",
    "count": r"0|[1-9]\d{0,15}",
    "number": r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?",
}

_PART = re.compile(r"<(\w+)>")


class Shape:
    """What a member, field or value looks like, and the ids in it."""

    __slots__ = ("_match", "parts")

    def __init__(self, text: str, shapes: Mapping[str, str]) -> None:
        known = {**COMMON, **shapes}
        self.parts = tuple(_PART.findall(text))
        pattern = _PART.sub(lambda m: f"({known[m[1]]})", text)
        self._match = re.compile(pattern, re.DOTALL).fullmatch

    def read(self, text: str) -> tuple[str, ...] | None:
        """The ids in a text; None if it does not look like this."""
        found = self._match(text)
        return found.groups() if found else None


class Entry(NamedTuple):
    """One thing to be judged: a member of a key, or a key as a whole.

    `value` is a member's score or a field's value; of a whole hash that has fields, all of them.
    """

    name: str
    parts: tuple[str, ...]
    member: str = ""
    ids: tuple[str, ...] = ()
    value: Any = None


def _nothing(entry: Entry) -> Sequence[Command]:
    return ()


Asks = Callable[[Entry], Sequence[Command]]
Judge = Callable[[Entry, Sequence[Any], int], str | None]


@dataclass(frozen=True, slots=True)
class Invariant:
    """What must be true of each member of a key, or with `whole` of the key.

    `asks` says what else must be read: commands, and questions as `("ASK", question, number of keys, key, …, arg, …)`.
    `judge` gets the replies and the time (Unix milliseconds) and says what is wrong, or None. `unless` is read only
    when something seems wrong: if anything of it is there, work is under way that explains it.
    """

    name: str
    key: Key
    asks: Asks
    judge: Judge
    repair: str = ""
    whole: bool = False
    unless: Asks = _nothing


@dataclass(frozen=True, slots=True)
class Fault:
    """What an inspector found wrong, sure of it."""

    family: str  # the pattern of the key
    rule: str
    key: str
    member: str
    says: str
    repair: str  # in words; '' if nothing decides it


class Inspector(Protocol):
    """Checks what rules cannot say, because the facts are not in Valkey."""

    def inspect(self) -> AsyncIterator[Fault]:
        """What is wrong and stays so when looked at again."""

    async def repair(self, fault: Fault) -> None:
        """Make it true again, from the facts as they are then."""


@dataclass(frozen=True, slots=True)
class Invariants:
    """What a domain adds to what its catalogue says.

    `repairs` are its repair commands, `repair_<name>` in its Lua, each with the key that it is called on.
    """

    rules: Sequence[Invariant] = ()
    repairs: Mapping[str, Key] = field(default_factory=dict)
