"""Reads the content of keys in bounded chunks, and single entries again for a recheck."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from plaza.core.functions import Functions
from plaza.core.invariants import Command, Entry, Invariant
from plaza.core.valkey import Arg, Valkey
from plaza.keyspace.audit.basic_invariants import CONTENT_FREE
from plaza.keyspace.family_matching import KeyFamily

# Members per read command: Valkey needs a few hundred microseconds for them.
CHUNK_MEMBERS = 400

Members = Sequence[tuple[str, Any]]  # each with its score or value

_SCAN_COMMANDS = {"hash": "HSCAN", "set": "SSCAN", "zset": "ZSCAN"}
_MEMBER_COMMANDS = {"hash": "HGET", "set": "SISMEMBER", "zset": "ZSCORE", "list": "LPOS"}


def as_commands(functions: Functions, reads: Sequence[Command]) -> Sequence[Command]:
    """The reads of invariants as Valkey commands: a `QUERY` is a Lua query."""
    return [_query_command(functions, *c[1:]) if c[0] == "QUERY" else c for c in reads]


def _query_command(functions: Functions, query: Arg, count: Arg, *words: Arg) -> Command:
    keys = int(count)
    return functions.query_command(str(query), [str(word) for word in words[:keys]], *words[keys:])


def first_read(family: KeyFamily, name: str) -> Command:
    """The command that reads a key or its first chunk. Valkey replies with an error if the type is wrong."""
    kind = family.key.type
    if kind == "string":
        return ("GET", name) if family.element_shape else ("STRLEN", name)
    if kind == "stream":
        return ("XLEN", name)
    if family.is_object:
        return ("HGETALL", name)
    if kind == "list":
        return ("LRANGE", name, 0, CHUNK_MEMBERS - 1)
    return (_SCAN_COMMANDS[kind], name, 0, "COUNT", CHUNK_MEMBERS)


def parse_chunk(family: KeyFamily, reply: Any) -> tuple[Members, str | int]:
    """Members with their scores or values, and the cursor of the next chunk; '0' if there is none."""
    kind = family.key.type
    if kind == "string":
        return (((reply, None),) if family.element_shape and reply is not None else ()), "0"
    if kind == "stream" or family.is_object:
        return (), "0"
    if kind == "list":
        return [(member, None) for member in reply], len(reply) if len(reply) == CHUNK_MEMBERS else "0"
    cursor, flat = reply
    if kind == "set":
        return [(member, None) for member in flat], cursor
    values = map(float, flat[1::2]) if kind == "zset" else flat[1::2]
    return list(zip(flat[::2], values, strict=True)), cursor


async def next_chunks(
    valkey: Valkey, family: KeyFamily, name: str, cursor: str | int
) -> AsyncIterator[Sequence[tuple[str, Any]]]:
    """The chunks of a large key after the first."""
    while str(cursor) != "0":
        if family.key.type == "list":
            first = int(cursor)
            reply = await valkey.call("LRANGE", name, first, first + CHUNK_MEMBERS - 1)
            found, length = parse_chunk(family, reply)
            cursor = first + int(length) if length != "0" else "0"
        else:
            reply = await valkey.call(_SCAN_COMMANDS[family.key.type], name, cursor, "COUNT", CHUNK_MEMBERS)
            found, cursor = parse_chunk(family, reply)
        yield found


def reread(family: KeyFamily, rule: Invariant, entry: Entry) -> Command:
    """The command that reads one entry again."""
    if rule.name in CONTENT_FREE:
        return ("EXISTS", entry.name)
    if family.is_object:
        return ("HGETALL", entry.name)
    if family.key.type == "string" and family.element_shape:
        return ("GET", entry.name)
    if rule.per_key:
        return ("EXISTS", entry.name)
    return (_MEMBER_COMMANDS[family.key.type], entry.name, entry.member)


def current_entry(family: KeyFamily, rule: Invariant, entry: Entry, reply: Any) -> Entry | None:
    """The entry with the value just read; None if it no longer exists."""
    by_existence = rule.name in CONTENT_FREE or (rule.per_key and not family.is_object)
    if by_existence or family.key.type == "set":
        return entry if reply else None
    if family.key.type == "list":
        return entry if reply is not None else None
    if family.is_object:
        return entry._replace(value=reply) if reply else None
    if family.key.type == "string":
        return None if reply is None else entry._replace(member=reply, ids=_ids(family, reply))
    return None if reply is None else entry._replace(value=reply)


def _ids(family: KeyFamily, member: str) -> tuple[str, ...]:
    return (family.element_shape.read(member) if family.element_shape else ()) or ()
