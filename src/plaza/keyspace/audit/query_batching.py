"""What the rules of a page want to know, asked in as few commands as possible.

Many rules want the same thing, which is asked once. Many want one member of the same key (hundreds of posts ask where
they stand in `explore:feed`), which is one command for all of them. And that keys exist is asked a hundred at a time:
only if not all of them do is it worth asking which.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from plaza.core.invariants import Command, Entry, Invariant
from plaza.keyspace.families import Family

# One member asked for, and how several are.
_TOGETHER = {"ZSCORE": "ZMSCORE", "SISMEMBER": "SMISMEMBER", "HGET": "HMGET"}
# Members of one key, or keys, in one command.
MOST = 100

Wrong = tuple[Family, Invariant, Entry]
Ask = Callable[[Sequence[Command]], Awaitable[list[Any]]]


class Questions:
    """Collects what is asked, gets it answered, and has it judged."""

    __slots__ = ("_apart", "_exist", "_groups", "_size", "_waiting")

    def __init__(self) -> None:
        # By command and key: where the answer for each member goes.
        self._groups: dict[Any, dict[Any, dict[Any, int]]] = {word: {} for word in _TOGETHER}
        self._exist: dict[Any, int] = {}
        self._apart: dict[Command, int] = {}
        self._size = 0
        self._waiting: list[tuple[Family, Invariant, Entry, list[int]]] = []

    def add(self, family: Family, rule: Invariant, entry: Entry) -> None:
        places = []
        for command in rule.asks(entry):
            word: Any = command[0]
            what: Any = command[1]
            group = self._groups.get(word)
            known: dict[Any, int] | None
            if group is not None:
                known = group.get(what)
                if known is None:
                    known = group[what] = {}
                what = command[2]
            elif word == "EXISTS":
                known = self._exist
            else:
                known, what = self._apart, command
            place = known.get(what)
            if place is None:
                place = known[what] = self._size
                self._size += 1
            places.append(place)
        self._waiting.append((family, rule, entry, places))

    async def judge(self, ask: Ask, now: Callable[[], int], *, one_server: bool) -> Iterator[Wrong]:
        """Those that seem wrong."""
        answers: list[Any] = [None] * self._size
        broken = await self._answer(ask, answers)
        await self._answer_existence(ask, answers, one_server)
        return self._wrong(answers, now(), broken)

    def _wrong(self, answers: list[Any], now: int, broken: bool) -> Iterator[Wrong]:
        for family, rule, entry, places in self._waiting:
            told = [answers[place] for place in places]
            if broken and any(isinstance(answer, Exception) for answer in told):
                continue  # of another type: the walk meets that key by itself
            if rule.judge(entry, told, now) is not None:
                yield family, rule, entry

    async def _answer(self, ask: Ask, answers: list[Any]) -> bool:
        """Fill in what was asked of members and apart. Returns whether any answer is an error."""
        together: list[Command] = []
        apart: dict[Command, int] = self._apart
        places: list[list[int]] = []
        groups = ((word, key, members) for word, keys in self._groups.items() for key, members in keys.items())
        for word, key, members in groups:
            if len(members) == 1:
                ((member, place),) = members.items()
                apart[word, key, member] = place
                continue
            for some in _some(list(members.items())):
                together.append((_TOGETHER[word], key, *(member for member, _ in some)))
                places.append([place for _, place in some])
        broken = False
        for place, answer in zip(apart.values(), await ask(list(apart)), strict=True):
            answers[place] = answer
            broken = broken or isinstance(answer, Exception)
        for some_places, reply in zip(places, await ask(together), strict=True):
            broken = broken or isinstance(reply, Exception)
            each = [reply] * len(some_places) if isinstance(reply, Exception) else reply
            for place, answer in zip(some_places, each, strict=True):
                answers[place] = answer
        return broken

    async def _answer_existence(self, ask: Ask, answers: list[Any], one_server: bool) -> None:
        apart = list(self._exist.items())
        if one_server:  # on a cluster each key may be elsewhere
            groups = list(_some(apart))
            counts = await ask([("EXISTS", *(key for key, _ in some)) for some in groups])
            apart = []
            for some, count in zip(groups, counts, strict=True):
                if count == len(some):
                    for _, place in some:
                        answers[place] = 1
                else:
                    apart += some
        for (_, place), answer in zip(apart, await ask([("EXISTS", key) for key, _ in apart]), strict=True):
            answers[place] = answer


def _some(things: list[Any]) -> Iterator[list[Any]]:
    for first in range(0, len(things), MOST):
        yield things[first : first + MOST]
