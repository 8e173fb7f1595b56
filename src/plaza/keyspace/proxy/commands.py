"""Which commands there are, and what each of their words is.

An allow-list: a command that is not here is refused, and so is a word that is not what its place asks for. Keys are
found by their place, never by what they look like, so no option can smuggle in another one. Left out on purpose is what
enumerates the keyspace (`SCAN`, `KEYS`), reads by patterns (`SORT`), combines sets at any cost (`ZUNION`, `SINTER`) or
waits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from plaza.core.errors import BadRequest
from plaza.core.keyspace import KeyType

# A range of so many elements is a page; of a longer one it is looked first how long it is.
PAGE: Final = 100
# Elements that a range by score may step over: Valkey walks past each.
MOST_OFFSET: Final = 10_000
# Elements that one step of a scan may look at.
MOST_COUNT: Final = 1_000
# Characters of a word, and of a value to be stored.
LONGEST_WORD: Final = 512
LONGEST_VALUE: Final = 4_096


class Refused(BadRequest):
    """A command that is not performed. Its text is an error reply, prefix and all."""

    title, code = "The command is refused", "refused"


def syntax_error() -> Refused:
    return Refused("ERR syntax error")


_SCORE = r"\(?(?:[+-]?inf|[+-]?\d+(?:\.\d*)?(?:e[+-]?\d+)?)"
_LEX = r"[-+]|[\[(].*"
_WORDS: Final[Mapping[str, tuple[re.Pattern[str], str]]] = {
    kind: (re.compile(pattern, re.DOTALL | re.IGNORECASE | re.ASCII), says)
    for kind, pattern, says in (
        ("key", ".+", "ERR a key needs a name"),
        ("field", ".+", "ERR a field needs a name"),
        ("member", ".*", ""),
        ("value", ".*", ""),
        ("index", r"-?\d{1,18}", "ERR value is not an integer or out of range"),
        ("integer", r"-?\d{1,19}", "ERR value is not an integer or out of range"),
        ("offset", r"\d{1,5}", f"ERR the offset must be 0 to {MOST_OFFSET}"),
        ("limit", r"-?\d{1,9}", "ERR value is not an integer or out of range"),
        ("count", r"\d{1,4}", f"ERR the count must be 1 to {MOST_COUNT}"),
        ("cursor", r"\d{1,20}", "ERR invalid cursor"),
        ("score", _SCORE, "ERR min or max is not a float"),
        ("lex", _LEX, "ERR min or max not valid string range item"),
        ("bound", f"{_SCORE}|{_LEX}", "ERR min or max is not valid"),
        # Each star of a pattern may be tried at every character.
        ("pattern", r"[^*]*(?:\*[^*]*){0,3}", "ERR a pattern has at most three stars"),
    )
}
_AT_MOST: Final = {"offset": MOST_OFFSET, "count": MOST_COUNT}


def check(kind: str, word: str) -> None:
    """Refuse a word that is not what its place asks for."""
    if len(word) > (LONGEST_VALUE if kind == "value" else LONGEST_WORD):
        raise Refused(f"ERR a {kind} is too long")
    pattern, says = _WORDS[kind]
    if not pattern.fullmatch(word) or (kind in _AT_MOST and int(word) > _AT_MOST[kind]):
        raise Refused(says)


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """A command: `words` stand after its name, then either `many`, once or more often, or `options` in any order."""

    name: str
    on: KeyType | None  # what its key must be; None for any
    absent: Callable[[ParsedCommand], Any]  # what it answers where there is no such key
    words: tuple[str, ...] = ("key",)
    many: tuple[str, ...] = ()
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    size: Callable[[ParsedCommand], tuple[str, ...] | None] | None = None  # how to ask how long the answer would be
    writes: bool = False

    def read(self, words: list[str]) -> ParsedCommand:
        """What somebody asks for, or why they may not."""
        given = words[1:]
        places = len(self.words)
        rest = given[places:]
        if len(given) < places or (self.many and (not rest or len(rest) % len(self.many))):
            raise Refused(f"ERR wrong number of arguments for '{self.name.lower()}' command")
        asked = ParsedCommand(self, given)
        for kind, word in zip(self.words + self.many * (len(rest) // max(len(self.many), 1)), given, strict=False):
            check(kind, word)
            asked.found.setdefault(kind, []).append(word)
        if not self.many:
            self._read_options(rest, asked)
        return asked

    def _read_options(self, rest: list[str], asked: ParsedCommand) -> None:
        while rest:
            name = rest[0].upper()
            kinds = self.options.get(name)
            if kinds is None or name in asked.options or len(rest) <= len(kinds):
                raise syntax_error()
            asked.options[name] = rest[1 : 1 + len(kinds)]
            for kind, word in zip(kinds, asked.options[name], strict=True):
                check(kind, word)
            rest = rest[1 + len(kinds) :]


@dataclass(slots=True)
class ParsedCommand:
    """A command as somebody gave it: its words by what they are."""

    command: CommandSpec
    given: list[str]  # all after the name
    found: dict[str, list[str]] = field(default_factory=dict)
    options: dict[str, list[str]] = field(default_factory=dict)

    @property
    def keys(self) -> list[str]:
        return self.found.get("key", [])

    @property
    def fields(self) -> list[str]:
        return self.found.get("field", [])


def _always(value: Any) -> Callable[[ParsedCommand], Any]:
    return lambda asked: value


def _each(value: Any, kind: str) -> Callable[[ParsedCommand], Any]:
    return lambda asked: [value] * len(asked.found[kind])


NIL, ZERO, NOTHING = _always(None), _always(0), _always([])
NOT_THERE, NO_MORE = _always(-2), _always([b"0", []])


def _whole(count: str) -> Callable[[ParsedCommand], tuple[str, ...] | None]:
    return lambda asked: (count,)


def _span(asked: ParsedCommand) -> tuple[str, ...] | None:
    """Of a range by place: nothing to ask if its ends say that it is a page."""
    first, last = (int(place) for place in asked.given[1:3])
    if (first < 0) == (last < 0) and last - first < PAGE:
        return None
    return ("LLEN" if asked.command.on == "list" else "ZCARD", *asked.given[1:3])


def _stretch(asked: ParsedCommand) -> tuple[str, ...] | None:
    """Of a range by score, or by name."""
    limit = asked.options.get("LIMIT")
    if limit is not None and 0 <= int(limit[1]) <= PAGE:
        return None
    first, last = asked.given[1:3]
    if "REV" in asked.command.name or "REV" in asked.options:
        first, last = last, first
    return ("ZLEXCOUNT" if "BYLEX" in asked.options or "LEX" in asked.command.name else "ZCOUNT", first, last)


def _range(asked: ParsedCommand) -> tuple[str, ...] | None:
    """Of `ZRANGE`, which is all of these."""
    if {"BYSCORE", "BYLEX"} <= asked.options.keys():
        raise syntax_error()
    kind = "score" if "BYSCORE" in asked.options else "lex" if "BYLEX" in asked.options else "index"
    for bound in asked.given[1:3]:
        check(kind, bound)
    if kind != "index":
        return _stretch(asked)
    if "LIMIT" in asked.options:
        raise syntax_error()
    return _span(asked)


_SCAN: Final = {"MATCH": ("pattern",), "COUNT": ("count",)}
_SCORES: Final = {"WITHSCORES": ()}
_LIMIT: Final = {"LIMIT": ("offset", "limit")}
_INDICES: Final = ("key", "index", "index")
_BETWEEN: Final = ("key", "score", "score")
_LEXICAL: Final = ("key", "lex", "lex")
_ZRANGE: Final = {"BYSCORE": (), "BYLEX": (), "REV": (), **_LIMIT, **_SCORES}

COMMANDS: Final[Mapping[str, CommandSpec]] = {
    command.name: command
    for command in (
        CommandSpec("EXISTS", None, ZERO, (), ("key",)),
        CommandSpec("TYPE", None, _always(b"none")),
        CommandSpec("TTL", None, NOT_THERE),
        CommandSpec("PTTL", None, NOT_THERE),
        CommandSpec("EXPIRETIME", None, NOT_THERE),
        CommandSpec("PEXPIRETIME", None, NOT_THERE),
        CommandSpec("GET", "string", NIL),
        CommandSpec("MGET", "string", NIL, (), ("key",)),
        CommandSpec("STRLEN", "string", ZERO),
        CommandSpec("GETRANGE", "string", _always(b""), _INDICES),
        CommandSpec("HGET", "hash", NIL, ("key", "field")),
        CommandSpec("HMGET", "hash", _each(None, "field"), ("key",), ("field",)),
        CommandSpec("HGETALL", "hash", NOTHING, size=_whole("HLEN")),
        CommandSpec("HKEYS", "hash", NOTHING, size=_whole("HLEN")),
        CommandSpec("HVALS", "hash", NOTHING, size=_whole("HLEN")),
        CommandSpec("HLEN", "hash", ZERO),
        CommandSpec("HEXISTS", "hash", ZERO, ("key", "field")),
        CommandSpec("HSTRLEN", "hash", ZERO, ("key", "field")),
        CommandSpec("HSCAN", "hash", NO_MORE, ("key", "cursor"), options={**_SCAN, "NOVALUES": ()}),
        CommandSpec("SMEMBERS", "set", NOTHING, size=_whole("SCARD")),
        CommandSpec("SISMEMBER", "set", ZERO, ("key", "member")),
        CommandSpec("SMISMEMBER", "set", _each(0, "member"), ("key",), ("member",)),
        CommandSpec("SCARD", "set", ZERO),
        CommandSpec("SSCAN", "set", NO_MORE, ("key", "cursor"), options=_SCAN),
        CommandSpec("ZRANGE", "zset", NOTHING, ("key", "bound", "bound"), options=_ZRANGE, size=_range),
        CommandSpec("ZREVRANGE", "zset", NOTHING, _INDICES, options=_SCORES, size=_span),
        CommandSpec("ZRANGEBYSCORE", "zset", NOTHING, _BETWEEN, options={**_SCORES, **_LIMIT}, size=_stretch),
        CommandSpec("ZREVRANGEBYSCORE", "zset", NOTHING, _BETWEEN, options={**_SCORES, **_LIMIT}, size=_stretch),
        CommandSpec("ZRANGEBYLEX", "zset", NOTHING, _LEXICAL, options=_LIMIT, size=_stretch),
        CommandSpec("ZREVRANGEBYLEX", "zset", NOTHING, _LEXICAL, options=_LIMIT, size=_stretch),
        CommandSpec("ZSCORE", "zset", NIL, ("key", "member")),
        CommandSpec("ZMSCORE", "zset", _each(None, "member"), ("key",), ("member",)),
        CommandSpec("ZRANK", "zset", NIL, ("key", "member")),
        CommandSpec("ZREVRANK", "zset", NIL, ("key", "member")),
        CommandSpec("ZCARD", "zset", ZERO),
        CommandSpec("ZCOUNT", "zset", ZERO, _BETWEEN),
        CommandSpec("ZLEXCOUNT", "zset", ZERO, _LEXICAL),
        CommandSpec("ZSCAN", "zset", NO_MORE, ("key", "cursor"), options=_SCAN),
        CommandSpec("LRANGE", "list", NOTHING, _INDICES, size=_span),
        CommandSpec("LLEN", "list", ZERO),
        CommandSpec("LINDEX", "list", NIL, ("key", "index")),
        CommandSpec("HSET", "hash", ZERO, ("key",), ("field", "value"), writes=True),
        CommandSpec("HDEL", "hash", ZERO, ("key",), ("field",), writes=True),
        CommandSpec("HINCRBY", "hash", ZERO, ("key", "field", "integer"), writes=True),
    )
}
# Clients ask these to see whether anybody is there; they concern no key and are answered here.
GREETINGS: Final[Mapping[str, CommandSpec]] = {
    "PING": CommandSpec("PING", None, _always(b"PONG"), ()),
    "ECHO": CommandSpec("ECHO", None, lambda asked: asked.given[0].encode(), ("value",)),
}


def read(words: list[str]) -> ParsedCommand:
    """Which command this is, and of what."""
    if not words:
        raise Refused("ERR a command is an array of strings, numbers and booleans")
    name = words[0].upper()
    command = COMMANDS.get(name) or GREETINGS.get(name)
    if command is None:
        raise Refused(f"ERR unknown or forbidden command '{name[:32].lower()}'")
    return command.read(words)
