"""Reads what keys hold, a bounded piece at a time, and the same again for one entry."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from plaza.core.functions import Functions
from plaza.core.invariants import Command, Entry, Invariant
from plaza.core.valkey import Valkey
from plaza.keyspace.audit.basic_invariants import BLIND
from plaza.keyspace.families import Family

# Members of one key read in one command: some hundred microseconds of Valkey.
MEMBERS = 400

Members = Sequence[tuple[str, Any]]  # each with its score or value

_SCAN = {"hash": "HSCAN", "set": "SSCAN", "zset": "ZSCAN"}
_ONE = {"hash": "HGET", "set": "SISMEMBER", "zset": "ZSCORE", "list": "LPOS"}


def as_commands(functions: Functions, asked: Sequence[Command]) -> Sequence[Command]:
    """What rules ask for, with questions as the commands they are."""
    return [functions.as_command(str(c[1]), *c[2:]) if c[0] == "ASK" else c for c in asked]


def first_read(family: Family, name: str) -> Command:
    """The command that reads a key, or the first piece of it. If it is of another type, Valkey says so."""
    kind = family.key.type
    if kind == "string":
        return ("GET", name) if family.holds else ("STRLEN", name)
    if kind == "stream":
        return ("XLEN", name)
    if family.is_object:
        return ("HGETALL", name)
    if kind == "list":
        return ("LRANGE", name, 0, MEMBERS - 1)
    return (_SCAN[kind], name, 0, "COUNT", MEMBERS)


def entries(family: Family, reply: Any) -> tuple[Members, str | int]:
    """Members with their scores or values, and where the next piece begins: '0' if there is none."""
    kind = family.key.type
    if kind == "string":
        return (((reply, None),) if family.holds and reply is not None else ()), "0"
    if kind == "stream" or family.is_object:
        return (), "0"
    if kind == "list":
        return [(member, None) for member in reply], len(reply) if len(reply) == MEMBERS else "0"
    cursor, flat = reply
    if kind == "set":
        return [(member, None) for member in flat], cursor
    values = map(float, flat[1::2]) if kind == "zset" else flat[1::2]
    return list(zip(flat[::2], values, strict=True)), cursor


async def more(
    valkey: Valkey, family: Family, name: str, cursor: str | int
) -> AsyncIterator[Sequence[tuple[str, Any]]]:
    """The further pieces of a large key."""
    while str(cursor) != "0":
        if family.key.type == "list":
            first = int(cursor)
            reply = await valkey.call("LRANGE", name, first, first + MEMBERS - 1)
            found, length = entries(family, reply)
            cursor = first + int(length) if length != "0" else "0"
        else:
            reply = await valkey.call(_SCAN[family.key.type], name, cursor, "COUNT", MEMBERS)
            found, cursor = entries(family, reply)
        yield found


def look(family: Family, rule: Invariant, entry: Entry) -> Command:
    """The command that reads one entry again."""
    if rule.name in BLIND:
        return ("EXISTS", entry.name)
    if family.is_object:
        return ("HGETALL", entry.name)
    if family.key.type == "string" and family.holds:
        return ("GET", entry.name)
    if rule.whole:
        return ("EXISTS", entry.name)
    return (_ONE[family.key.type], entry.name, entry.member)


def seen_again(family: Family, rule: Invariant, entry: Entry, reply: Any) -> Entry | None:
    """The entry as it is now; None if it is gone."""
    by_existence = rule.name in BLIND or (rule.whole and not family.is_object)
    if by_existence or family.key.type == "set":
        return entry if reply else None
    if family.key.type == "list":
        return entry if reply is not None else None
    if family.is_object:
        return entry._replace(value=reply) if reply else None
    if family.key.type == "string":
        return None if reply is None else entry._replace(member=reply, ids=_ids(family, reply))
    return None if reply is None else entry._replace(value=reply)


def _ids(family: Family, member: str) -> tuple[str, ...]:
    return (family.holds.read(member) if family.holds else ()) or ()
