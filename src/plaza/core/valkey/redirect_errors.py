"""Redirections of a cluster (MOVED, ASK) and "try again" replies: the command did not run and is sent again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

from plaza.core.valkey.calls import NotReady, ReplyError, ReplyGroup, all_or_first_error
from plaza.core.valkey.connection import Connection, pack

_ASKING = pack(("ASKING",))

# Sends a command to a node, with or without ASKING.
Resend = Callable[[Connection, bool], Awaitable[Any]]


def is_redirect(error: Exception) -> bool:
    """Whether the command did not run and must be sent to another node, or again a little later."""
    if isinstance(error, ReplyError):
        return error.code in ("MOVED", "ASK")
    return isinstance(error, NotReady) and error.reply in ("TRYAGAIN", "CLUSTERDOWN")


def out_of_time(error: Exception) -> Exception:
    return NotReady(error.code, error.message) if isinstance(error, ReplyError) else error


def single_reply(replies: list[Any]) -> Any:
    return all_or_first_error(replies)[0]


def resend(packed: bytes, count: int, finish: Callable[[list[Any]], Any], until: float) -> Resend:
    """Return a function that sends packed commands to a node, with ASKING in the same write if needed."""

    def send(connection: Connection, asking: bool) -> asyncio.Future[Any]:
        to_send = _ASKING + packed if asking else packed
        group = ReplyGroup(count + asking, lambda replies: finish(replies[asking:]))
        return connection.send(to_send, group, max(until - monotonic(), 0))

    return send
