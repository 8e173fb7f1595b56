"""Follows redirections on a cluster until a command runs or its time is over."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextvars import Context
from time import monotonic
from typing import Any

from plaza.core.valkey.calls import REQUEST_USAGE, ConnectionLost, NotReady, PendingCall, ReplyError, fail
from plaza.core.valkey.cluster_topology import ClusterTopology, StartTask
from plaza.core.valkey.connection import Connection
from plaza.core.valkey.redirect_errors import Resend, is_redirect, out_of_time, resend, single_reply

# The first redirections are followed at once. After that the cluster is changing, and each retry waits longer.
_IMMEDIATE_RETRIES = 2
_PAUSE_SECONDS = 0.05
_MAX_PAUSE_SECONDS = 0.4


class RedirectFollower:
    """Sends redirected commands again."""

    def __init__(
        self, topology: Callable[[], ClusterTopology], start_task: StartTask, closed: Callable[[], ConnectionLost]
    ) -> None:
        self._topology = topology
        self._start_task = start_task
        self._closed = closed

    def on_error_reply(self, connection: Connection, call: PendingCall, error: Exception) -> bool:
        """Take over a single call that was redirected; return False for any other error."""
        if not is_redirect(error):
            return False
        context = Context()
        context.run(REQUEST_USAGE.set, call[3])
        task = self._start_task(self._follow(connection, call, error), context)
        call[1].add_done_callback(lambda _: task.cancel())  # a cancelled call is not sent again
        return True

    async def _follow(self, connection: Connection, call: PendingCall, error: Exception) -> None:
        packed, future, _, _, _, until = call
        try:
            reply = await self.retry(connection, error, until, resend(packed, 1, single_reply, until))
        except asyncio.CancelledError:
            fail(call, self._closed(), monotonic())
            raise
        except Exception as last:
            if not future.done():
                future.set_exception(last)
        else:
            if not future.done():
                future.set_result(reply)

    async def follow(self, first: Awaitable[Any], connection: Connection, until: float, send: Resend) -> Any:
        """Await a sent command, and send it again if it is redirected."""
        try:
            return await first
        except (ReplyError, NotReady) as error:
            return await self.retry(connection, error, until, send)

    async def retry(self, connection: Connection, error: Exception, until: float, send: Resend) -> Any:
        """Send a redirected command again until it runs or its time is over."""
        asking = False
        attempt = 0
        while is_redirect(error):
            attempt += 1
            if attempt > _IMMEDIATE_RETRIES or isinstance(error, NotReady):
                pause = random.uniform(0.5, 1) * min(_PAUSE_SECONDS * 2**attempt, _MAX_PAUSE_SECONDS)
                if monotonic() + pause >= until:
                    raise out_of_time(error)
                await asyncio.sleep(pause)
            connection, asking = self._next_target(connection, asking, error)
            try:
                return await send(connection, asking)
            except (ReplyError, NotReady) as next_error:
                error = next_error
        raise error

    def _next_target(self, connection: Connection, asking: bool, error: Exception) -> tuple[Connection, bool]:
        """Return where to send next, and whether with ASKING. Updates the topology by the error."""
        topology = self._topology()
        if not isinstance(error, ReplyError):
            topology.reload_soon()
            return connection, asking
        code, slot, place = error.message.split(" ")[:3]
        host, _, port = place.rpartition(":")
        # A node that does not know its own host name omits it: use the host of this connection.
        address = connection.address.at(host if host not in ("", "?") else connection.address.host, int(port))
        server = topology.node(address)
        if code == "MOVED":
            topology.move_slot(int(slot), server)
        return server.connection(not connection.text), code == "ASK"
