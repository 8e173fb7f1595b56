"""From a command that somebody gives to what is sent to Valkey, and back from its replies to an answer.

What is sent has one key each, so that it has one place in a cluster and one rule: `MGET` and `EXISTS` of several keys
become several commands, and their replies one answer again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from plaza.core.functions import Functions, Library
from plaza.core.keyspace import Catalogue, HiddenWhile, Key, KeyAccess
from plaza.core.valkey import Arg, NotReady, ReplyError
from plaza.keyspace.proxy.access_rules import AccessRules, Caller, TargetKey
from plaza.keyspace.proxy.commands import ParsedCommand, Refused, read

LIBRARY: Final = Library.read("proxy", Catalogue("proxy", {}, {}), "plaza.keyspace.proxy", "proxy")

# What a profile may grow to through the proxy. All of it is read at once, so it stays as small as one page.
MOST_FIELDS: Final = 128
MOST_BYTES: Final = 32_768

Step = tuple[Arg, ...]
# From the replies, and from whether what was looked for is there, to the answer.
Finish = Callable[[list[Any], list[bool]], Any]


@dataclass(frozen=True, slots=True)
class CommandPlan:
    """A permitted command: its steps, given how many elements an answer may have, and what their replies come to."""

    asked: ParsedCommand
    count: int  # of steps
    steps: Callable[[int], list[Step]]
    finish: Finish
    sized: bool = False  # the answer may be long
    # What to ask, now that the replies tell of whom; `finish` hears what was said to it.
    look: Callable[[list[Any]], list[Step | None]] = lambda replies: []

    @property
    def writes(self) -> bool:
        return self.asked.command.writes


class CommandPlanner:
    def __init__(self, rules: AccessRules, functions: Functions) -> None:
        self._rules = rules
        self._functions = functions
        self._layout = functions.valkey.layout

    def plan(self, caller: Caller, words: list[str]) -> CommandPlan:
        """What a command takes, or `Refused`. No round trip."""
        asked = read(words)
        places = [self._rules.place(caller, key) for key in asked.keys]
        for place in places:
            if asked.command.writes:
                place.permit_writing(asked)
            else:
                place.permit_reading(asked)
        if asked.command.many == ("key",):
            return self._several(asked, places)
        if not places:
            return CommandPlan(asked, 0, lambda most: [], lambda replies, looked: asked.command.absent(asked))
        return self._single(asked, places[0])

    def _single(self, asked: ParsedCommand, place: TargetKey) -> CommandPlan:
        size = _size(asked, place)
        rest = asked.given[1:]
        # Which value is whose is seen only beside its field's name.
        name = "HGETALL" if asked.command.name == "HVALS" and place.family.fields else asked.command.name

        def finish(replies: list[Any], looked: list[bool]) -> Any:
            if any(looked):
                return asked.command.absent(asked)
            heard = _heard(asked, replies[0])
            return int(heard) if name == "HINCRBY" else _shown(asked, place, heard)

        if asked.command.writes:
            key = place.name(self._layout)
            write = self._functions.run_command("proxy_write", [key], MOST_FIELDS, MOST_BYTES, name, *rest)
            return CommandPlan(asked, 1, lambda most: [write], finish)
        behind = self._rules.behind(place)
        if behind is not None:
            steps = [self._step(name, place, rest, (), 0), self._who(place, behind)]
            return CommandPlan(
                asked, 2, lambda most: steps, finish, look=lambda replies: [self._look(behind, replies[1])]
            )
        return CommandPlan(asked, 1, lambda most: [self._step(name, place, rest, size, most)], finish, sized=bool(size))

    def _several(self, asked: ParsedCommand, places: list[TargetKey]) -> CommandPlan:
        """A step for each key; after them, for each that somebody may be behind, one that tells who."""
        name, count = "GET" if asked.command.name == "MGET" else asked.command.name, len(places)
        behind = {i: found for i, place in enumerate(places) if (found := self._rules.behind(place))}
        steps = [self._step(name, place, [], (), 0) for place in places]
        steps += [self._who(places[i], found) for i, found in behind.items()]

        def look(replies: list[Any]) -> list[Step | None]:
            return [self._look(found, who) for found, who in zip(behind.values(), replies[count:], strict=True)]

        def finish(replies: list[Any], looked: list[bool]) -> Any:
            hidden = {i for i, there in zip(behind, looked, strict=True) if there}
            if name == "GET":
                return [None if _is(reply, "WRONGTYPE") else _heard(asked, reply) for reply in replies]
            return sum(_heard(asked, reply) for i, reply in enumerate(replies[:count]) if i not in hidden)

        return CommandPlan(asked, len(steps), lambda most: steps, finish, look=look)

    def _who(self, place: TargetKey, behind: tuple[Key, HiddenWhile]) -> Step:
        """Asks who is behind a key."""
        return ("HGET", place.name(self._layout), behind[1].via)

    def _look(self, behind: tuple[Key, HiddenWhile], who: Any) -> Step | None:
        """Asks whether that one hides it."""
        family, hidden = behind
        return ("HEXISTS", family.name(self._layout, _text(who)), hidden.field) if isinstance(who, bytes) else None

    def _step(self, name: str, place: TargetKey, rest: list[str], size: tuple[str, ...], most: int) -> Step:
        """One command on one key; by way of a function where the answer must be looked at first."""
        key, hiding = place.name(self._layout), self._rules.hiding(place)
        if not hiding and not size:
            return (name, key, *rest)
        keys = [key, hiding[0].name(self._layout)] if hiding else [key]
        field = hiding[1] if hiding else ""
        looked: Step = (field, most, len(size), *size, name, *rest)
        return self._functions.query_command("proxy_read", keys, *looked)


def _size(asked: ParsedCommand, place: TargetKey) -> tuple[str, ...]:
    """What asks how long an answer would be; nothing where that is known, as of a hash whose fields are declared."""
    if asked.command.size is None:
        return ()
    size = asked.command.size(asked) or ()
    declared = place.family.fields and place.family.write is KeyAccess.NONE
    return () if declared else size


def _is(reply: Any, code: str) -> bool:
    return isinstance(reply, ReplyError) and reply.code == code


def _heard(asked: ParsedCommand, reply: Any) -> Any:
    """A reply as the caller may hear it."""
    if _is(reply, "HIDDEN"):
        return asked.command.absent(asked)
    if isinstance(reply, ReplyError | NotReady):
        raise Refused(_without_script(reply.message))
    return reply


def _without_script(message: str) -> str:
    """Valkey adds where in a function an error arose, which is ours to know."""
    return message.partition(" script: ")[0]


def _shown(asked: ParsedCommand, place: TargetKey, reply: Any) -> Any:
    """Of a whole hash, or of what a scan came by, the fields that are for this caller."""
    name = asked.command.name
    if not place.family.fields or name not in ("HGETALL", "HKEYS", "HVALS", "HSCAN"):
        return reply
    if name == "HSCAN":
        cursor, found = reply
        return [cursor, _names(place, found) if "NOVALUES" in asked.options else _pairs(place, found)]
    if name == "HKEYS":
        return _names(place, reply)
    pairs = _pairs(place, reply)
    return pairs[1::2] if name == "HVALS" else pairs


def _names(place: TargetKey, names: list[bytes]) -> list[bytes]:
    return [name for name in names if place.shows(_text(name))]


def _pairs(place: TargetKey, flat: list[bytes]) -> list[bytes]:
    pairs = zip(flat[::2], flat[1::2], strict=True)
    return [part for name, value in pairs if place.shows(_text(name)) for part in (name, value)]


def _text(name: bytes) -> str:
    return name.decode(errors="replace")
