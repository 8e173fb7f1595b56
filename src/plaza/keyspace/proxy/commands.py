"""The commands that the proxy accepts, and the kind of each of their arguments.

This is an allow-list: other commands are refused, and so is an argument of the wrong kind. Keys are found by their
position, never by what they look like, so an option cannot add another key. Left out on purpose are commands that list
the keyspace (`SCAN`, `KEYS`), read keys by pattern (`SORT`), combine sets at any cost (`ZUNION`, `SINTER`) or block.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct, field

from plaza.core.errors import BadRequest
from plaza.core.keyspace import KeyType

# A range of at most this many elements is sent at once; for a longer one the length is read first.
PAGE_ELEMENTS: Final = 100
# Elements that a range by score may skip: Valkey steps over each of them.
MAX_OFFSET: Final = 10_000
# The largest COUNT of a scan.
MAX_SCAN_COUNT: Final = 1_000
# Valkey's COUNT of a scan without one.
DEFAULT_SCAN_COUNT: Final = 10
MAX_ARGUMENT_CHARACTERS: Final = 512
MAX_VALUE_CHARACTERS: Final = 4_096


class Refused(BadRequest):
    """A command that is not run. Its text is a Valkey error reply with its prefix."""

    title, code = "The command is refused", "refused"


def syntax_error() -> Refused:
    return Refused("ERR syntax error")


_SCORE = r"\(?(?:[+-]?inf|[+-]?\d+(?:\.\d*)?(?:e[+-]?\d+)?)"
_LEX = r"[-+]|[\[(].*"
_KINDS: Final[Mapping[str, tuple[re.Pattern[str], str]]] = {
    kind: (re.compile(pattern, re.DOTALL | re.IGNORECASE | re.ASCII), error)
    for kind, pattern, error in (
        ("key", ".+", "ERR a key needs a name"),
        ("field", ".+", "ERR a field needs a name"),
        ("member", ".*", ""),
        ("value", ".*", ""),
        ("index", r"-?\d{1,18}", "ERR value is not an integer or out of range"),
        ("integer", r"-?\d{1,19}", "ERR value is not an integer or out of range"),
        ("offset", r"\d{1,5}", f"ERR the offset must be 0 to {MAX_OFFSET}"),
        ("limit", r"-?\d{1,9}", "ERR value is not an integer or out of range"),
        ("count", r"\d{1,4}", f"ERR the count must be 1 to {MAX_SCAN_COUNT}"),
        ("cursor", r"\d{1,20}", "ERR invalid cursor"),
        ("score", _SCORE, "ERR min or max is not a float"),
        ("lex", _LEX, "ERR min or max not valid string range item"),
        ("bound", f"{_SCORE}|{_LEX}", "ERR min or max is not valid"),
        # Matching tries every star at every character of every element, and a class `[…]` compares all its characters.
        (
            "pattern",
            r"(?=.{0,64}\Z)[^*\[\\]*(?:\*[^*\[\\]*){0,2}",
            "ERR a pattern has at most 64 characters and two stars, and no brackets or backslashes",
        ),
    )
}
_MAXIMUM: Final = {"offset": MAX_OFFSET, "count": MAX_SCAN_COUNT}


def check(kind: str, argument: str) -> None:
    """Refuse an argument that is not of the kind its position requires."""
    if len(argument) > (MAX_VALUE_CHARACTERS if kind == "value" else MAX_ARGUMENT_CHARACTERS):
        raise Refused(f"ERR a {kind} is too long")
    pattern, error = _KINDS[kind]
    if not pattern.fullmatch(argument) or (kind in _MAXIMUM and int(argument) > _MAXIMUM[kind]):
        raise Refused(error)


class CommandSpec(Struct, frozen=True):
    """A command: the kinds of its `arguments`, then either `repeated` ones, once or more, or `options` in any order."""

    name: str
    key_type: KeyType | None  # the type its key must have; None for any
    reply_if_absent: Callable[[ParsedCommand], Any]  # its reply if the key does not exist
    arguments: tuple[str, ...] = ("key",)
    repeated: tuple[str, ...] = ()
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # The command that returns the length of its reply, without the key; None if the reply is short.
    length_command: Callable[[ParsedCommand], tuple[str, ...] | None] | None = None
    writes: bool = False

    def parse(self, words: list[str]) -> ParsedCommand:
        """Check the arguments of a command. Raises `Refused` if one is wrong."""
        given = words[1:]
        fixed = len(self.arguments)
        rest = given[fixed:]
        if len(given) < fixed or (self.repeated and (not rest or len(rest) % len(self.repeated))):
            raise Refused(f"ERR wrong number of arguments for '{self.name.lower()}' command")
        parsed = ParsedCommand(self, given)
        kinds = self.arguments + self.repeated * (len(rest) // max(len(self.repeated), 1))
        for kind, argument in zip(kinds, given, strict=False):
            check(kind, argument)
            parsed.by_kind.setdefault(kind, []).append(argument)
        if not self.repeated:
            self._parse_options(rest, parsed)
        return parsed

    def _parse_options(self, rest: list[str], parsed: ParsedCommand) -> None:
        while rest:
            name = rest[0].upper()
            kinds = self.options.get(name)
            if kinds is None or name in parsed.options or len(rest) <= len(kinds):
                raise syntax_error()
            parsed.options[name] = rest[1 : 1 + len(kinds)]
            for kind, argument in zip(kinds, parsed.options[name], strict=True):
                check(kind, argument)
            rest = rest[1 + len(kinds) :]


class ParsedCommand(Struct):
    """A checked command of a caller, with its arguments by kind."""

    spec: CommandSpec
    arguments: list[str]  # all after the name
    by_kind: dict[str, list[str]] = field(default_factory=dict)
    options: dict[str, list[str]] = field(default_factory=dict)

    @property
    def keys(self) -> list[str]:
        return self.by_kind.get("key", [])

    @property
    def fields(self) -> list[str]:
        return self.by_kind.get("field", [])


def _always(value: Any) -> Callable[[ParsedCommand], Any]:
    return lambda command: value


def _for_each(value: Any, kind: str) -> Callable[[ParsedCommand], Any]:
    return lambda command: [value] * len(command.by_kind[kind])


NIL, ZERO, EMPTY = _always(None), _always(0), _always([])
NO_SUCH_KEY, SCAN_END = _always(-2), _always([b"0", []])


def _size(command_name: str) -> Callable[[ParsedCommand], tuple[str, ...] | None]:
    return lambda command: (command_name,)


def _index_range(command: ParsedCommand) -> tuple[str, ...] | None:
    """The length command of a range by index; None if its bounds show that it is a page."""
    first, last = (int(bound) for bound in command.arguments[1:3])
    if (first < 0) == (last < 0) and last - first < PAGE_ELEMENTS:
        return None
    return ("LLEN" if command.spec.key_type == "list" else "ZCARD", *command.arguments[1:3])


def _value_range(command: ParsedCommand) -> tuple[str, ...] | None:
    """The length command of a range by score or by member; None if LIMIT makes it a page."""
    limit = command.options.get("LIMIT")
    if limit is not None and 0 <= int(limit[1]) <= PAGE_ELEMENTS:
        return None
    first, last = command.arguments[1:3]
    if "REV" in command.spec.name or "REV" in command.options:
        first, last = last, first
    return ("ZLEXCOUNT" if "BYLEX" in command.options or "LEX" in command.spec.name else "ZCOUNT", first, last)


def _zrange(command: ParsedCommand) -> tuple[str, ...] | None:
    """The length command of `ZRANGE`, which selects by index, score or member."""
    if {"BYSCORE", "BYLEX"} <= command.options.keys():
        raise syntax_error()
    kind = "score" if "BYSCORE" in command.options else "lex" if "BYLEX" in command.options else "index"
    for bound in command.arguments[1:3]:
        check(kind, bound)
    if kind != "index":
        return _value_range(command)
    if "LIMIT" in command.options:
        raise syntax_error()
    return _index_range(command)


_SCAN: Final = {"MATCH": ("pattern",), "COUNT": ("count",)}
_SCORES: Final = {"WITHSCORES": ()}
_LIMIT: Final = {"LIMIT": ("offset", "limit")}
_INDICES: Final = ("key", "index", "index")
_SCORE_BOUNDS: Final = ("key", "score", "score")
_LEX_BOUNDS: Final = ("key", "lex", "lex")
_ZRANGE_OPTIONS: Final = {"BYSCORE": (), "BYLEX": (), "REV": (), **_LIMIT, **_SCORES}
_SCORES_AND_LIMIT: Final = {**_SCORES, **_LIMIT}

COMMANDS: Final[Mapping[str, CommandSpec]] = {
    spec.name: spec
    for spec in (
        CommandSpec("EXISTS", None, ZERO, (), ("key",)),
        CommandSpec("TYPE", None, _always(b"none")),
        CommandSpec("TTL", None, NO_SUCH_KEY),
        CommandSpec("PTTL", None, NO_SUCH_KEY),
        CommandSpec("EXPIRETIME", None, NO_SUCH_KEY),
        CommandSpec("PEXPIRETIME", None, NO_SUCH_KEY),
        CommandSpec("GET", "string", NIL),
        CommandSpec("MGET", "string", NIL, (), ("key",)),
        CommandSpec("STRLEN", "string", ZERO),
        CommandSpec("GETRANGE", "string", _always(b""), _INDICES),
        CommandSpec("HGET", "hash", NIL, ("key", "field")),
        CommandSpec("HMGET", "hash", _for_each(None, "field"), ("key",), ("field",)),
        CommandSpec("HGETALL", "hash", EMPTY, length_command=_size("HLEN")),
        CommandSpec("HKEYS", "hash", EMPTY, length_command=_size("HLEN")),
        CommandSpec("HVALS", "hash", EMPTY, length_command=_size("HLEN")),
        CommandSpec("HLEN", "hash", ZERO),
        CommandSpec("HEXISTS", "hash", ZERO, ("key", "field")),
        CommandSpec("HSTRLEN", "hash", ZERO, ("key", "field")),
        CommandSpec("HSCAN", "hash", SCAN_END, ("key", "cursor"), options={**_SCAN, "NOVALUES": ()}),
        CommandSpec("SMEMBERS", "set", EMPTY, length_command=_size("SCARD")),
        CommandSpec("SISMEMBER", "set", ZERO, ("key", "member")),
        CommandSpec("SMISMEMBER", "set", _for_each(0, "member"), ("key",), ("member",)),
        CommandSpec("SCARD", "set", ZERO),
        CommandSpec("SSCAN", "set", SCAN_END, ("key", "cursor"), options=_SCAN),
        CommandSpec(
            "ZRANGE", "zset", EMPTY, ("key", "bound", "bound"), options=_ZRANGE_OPTIONS, length_command=_zrange
        ),
        CommandSpec("ZREVRANGE", "zset", EMPTY, _INDICES, options=_SCORES, length_command=_index_range),
        CommandSpec(
            "ZRANGEBYSCORE", "zset", EMPTY, _SCORE_BOUNDS, options=_SCORES_AND_LIMIT, length_command=_value_range
        ),
        CommandSpec(
            "ZREVRANGEBYSCORE", "zset", EMPTY, _SCORE_BOUNDS, options=_SCORES_AND_LIMIT, length_command=_value_range
        ),
        CommandSpec("ZRANGEBYLEX", "zset", EMPTY, _LEX_BOUNDS, options=_LIMIT, length_command=_value_range),
        CommandSpec("ZREVRANGEBYLEX", "zset", EMPTY, _LEX_BOUNDS, options=_LIMIT, length_command=_value_range),
        CommandSpec("ZSCORE", "zset", NIL, ("key", "member")),
        CommandSpec("ZMSCORE", "zset", _for_each(None, "member"), ("key",), ("member",)),
        CommandSpec("ZRANK", "zset", NIL, ("key", "member")),
        CommandSpec("ZREVRANK", "zset", NIL, ("key", "member")),
        CommandSpec("ZCARD", "zset", ZERO),
        CommandSpec("ZCOUNT", "zset", ZERO, _SCORE_BOUNDS),
        CommandSpec("ZLEXCOUNT", "zset", ZERO, _LEX_BOUNDS),
        CommandSpec("ZSCAN", "zset", SCAN_END, ("key", "cursor"), options=_SCAN),
        CommandSpec("LRANGE", "list", EMPTY, _INDICES, length_command=_index_range),
        CommandSpec("LLEN", "list", ZERO),
        CommandSpec("LINDEX", "list", NIL, ("key", "index")),
        CommandSpec("HSET", "hash", ZERO, ("key",), ("field", "value"), writes=True),
        CommandSpec("HDEL", "hash", ZERO, ("key",), ("field",), writes=True),
        CommandSpec("HINCRBY", "hash", ZERO, ("key", "field", "integer"), writes=True),
    )
}
# Clients use these to test the connection. They have no key, and the proxy replies to them itself.
CONNECTION_COMMANDS: Final[Mapping[str, CommandSpec]] = {
    "PING": CommandSpec("PING", None, _always(b"PONG"), ()),
    "ECHO": CommandSpec("ECHO", None, lambda command: command.arguments[0].encode(), ("value",)),
}


def parse_command(words: list[str]) -> ParsedCommand:
    """Find and check a command. Raises `Refused` if it is not in the allow-list or an argument is wrong."""
    if not words:
        raise Refused("ERR a command is an array of strings, numbers and booleans")
    name = words[0].upper()
    spec = COMMANDS.get(name) or CONNECTION_COMMANDS.get(name)
    if spec is None:
        raise Refused(f"ERR unknown or forbidden command '{name[:32].lower()}'")
    return spec.parse(words)
