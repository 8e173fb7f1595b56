"""Answers of a cluster that mean "not here" or "not yet": the command did not run, and how it is sent again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

from plaza.core.valkey.calls import NotReady, ReplyError, ReplyGroup, all_or_first_error
from plaza.core.valkey.connection import Connection, pack

_ASKING = pack(("ASKING",))

# Sends a command to a node, with ASKING or without.
Resend = Callable[[Connection, bool], Awaitable[Any]]


def is_redirect(error: Exception) -> bool:
    """Whether the command did not run and belongs elsewhere, or will run here a little later."""
    if isinstance(error, ReplyError):
        return error.code in ("MOVED", "ASK")
    return isinstance(error, NotReady) and error.reply in ("TRYAGAIN", "CLUSTERDOWN")


def out_of_time(error: Exception) -> Exception:
    return NotReady(error.code, error.message) if isinstance(error, ReplyError) else error


def single_reply(replies: list[Any]) -> Any:
    return all_or_first_error(replies)[0]


def resend(packed: bytes, count: int, finish: Callable[[list[Any]], Any], until: float) -> Resend:
    """How to send bytes to any node, with ASKING in the same write where that is needed."""

    def again(connection: Connection, asking: bool) -> asyncio.Future[Any]:
        whole = _ASKING + packed if asking else packed
        gather = ReplyGroup(count + asking, lambda replies: finish(replies[asking:]))
        return connection.send(whole, gather, max(until - monotonic(), 0))

    return again
