"""Replies to reads of a key that another service wrote with the wrong type: as if the key were absent.

They are used in requests that only read (`RequestUsage.only_reads`), so that one damaged key does not break a page, an
export or a list of many others. Writes still fail: they could not be stored. Queries in Lua do the same by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeGuard

from plaza.core.valkey.calls import ReplyError, RequestUsage

_ZERO: Final = ("HEXISTS", "HLEN", "LLEN", "SCARD", "SISMEMBER", "STRLEN", "ZCARD", "ZCOUNT", "ZLEXCOUNT")
_NONE: Final = ("GET", "HGET", "LINDEX", "LPOS", "ZRANK", "ZREVRANK", "ZSCORE")
_EMPTY: Final = (
    "HKEYS", "HVALS", "LRANGE", "SMEMBERS", "SRANDMEMBER", "ZRANGE", "ZRANGEBYLEX", "ZRANGEBYSCORE", "ZREVRANGE",
)  # fmt: skip
_FOR_EACH: Final = {"HMGET": None, "ZMSCORE": None, "SMISMEMBER": 0}
_SCANS: Final = ("HSCAN", "SSCAN", "ZSCAN")


def reads_as_absent(error: Exception, usage: RequestUsage | None) -> bool:
    """Whether a request takes the key of an error as absent. The error is kept for its report."""
    if usage is None or not usage.only_reads or not _is_wrong_type(error):
        return False
    usage.damaged = usage.damaged or error
    return True


def with_absent_replies(packed: bytes, replies: Sequence[Any], resp: int) -> list[Any]:
    """Return the replies of packed commands, with those of absent keys instead of `WRONGTYPE` errors."""
    return [
        _absent_reply(command, reply, resp) if _is_wrong_type(reply) else reply
        for command, reply in zip(_commands(packed), replies, strict=True)
    ]


def _is_wrong_type(reply: Any) -> TypeGuard[ReplyError]:
    return isinstance(reply, ReplyError) and reply.code == "WRONGTYPE"


def _absent_reply(command: Sequence[bytes], error: ReplyError, resp: int) -> Any:
    """Return the reply for an absent key, or the error of a command that is not a known read."""
    name = command[0].upper().decode()
    if name in _ZERO:
        return 0
    if name in _NONE:
        return None
    if name in _EMPTY:
        return []
    if name == "HGETALL":
        return {} if resp == 3 else []
    if name in _FOR_EACH:
        return [_FOR_EACH[name]] * (len(command) - 2)
    return ["0", []] if name in _SCANS else error


def _commands(packed: bytes) -> list[list[bytes]]:
    """Return the words of each packed command."""
    commands, at = [], 0
    while at < len(packed):
        end = packed.index(b"\r\n", at)
        count, words = int(packed[at + 1 : end]), []
        at = end + 2
        for _ in range(count):
            end = packed.index(b"\r\n", at)
            start, size = end + 2, int(packed[at + 1 : end])
            words.append(packed[start : start + size])
            at = start + size + 2
        commands.append(words)
    return commands
