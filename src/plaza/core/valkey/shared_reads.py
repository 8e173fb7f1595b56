"""Reads that several callers want at the same moment are sent once.

While a command is not written yet, others that are equal join it. So each reply is of a read that began after its call.
"""

from __future__ import annotations

from asyncio import Future
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from plaza.core.valkey.calls import REQUEST_USAGE, PendingCall, ReplyGroup, RequestUsage, all_or_first_error

if TYPE_CHECKING:
    from plaza.core.valkey.connection import Connection

# While the connection is down or overloaded, calls wait, and fail when their time is over. A caller that joins another
# fails with it, so none joins a call that has waited this long.
MAX_JOIN_SECONDS: Final = 0.1


class SharedCall(ReplyGroup):
    """A read that several callers wait for, and that is sent once. Each has a future and a usage of its own."""

    __slots__ = ("since", "usage", "waiting")

    def __init__(self, *, only_reads: bool) -> None:
        super().__init__(1, self._share)
        self.usage = RequestUsage(only_reads=only_reads)
        self.waiting: list[tuple[Future[Any], RequestUsage | None]] = []
        self.since = monotonic()

    def _share(self, replies: list[Any]) -> None:
        (reply,) = all_or_first_error(replies)
        for future, usage in self.waiting:
            self._count(usage)
            if not future.done():
                future.set_result(reply)

    def end(self, call: Future[Any]) -> None:
        """Fail all callers if the call failed, and let go of the replies."""
        error = call.exception()
        if error is not None:
            for future, usage in self.waiting:
                self._count(usage)
                if not future.done():
                    future.set_exception(error)
        self.waiting, self.replies, self.finish = [], [], all_or_first_error  # it referred to itself

    def _count(self, usage: RequestUsage | None) -> None:
        if usage is not None:
            usage.seconds += self.usage.seconds
            usage.damaged = usage.damaged or self.usage.damaged


class SharedReads:
    """Sends reads on a connection, equal ones of the same moment together."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._queue: list[PendingCall] | None = None  # that the calls are in; a connection that writes starts another
        self._calls: dict[bytes, SharedCall] = {}

    def send(self, packed: bytes) -> Future[Any]:
        """Queue a packed read, or join the same one. All callers get the same reply object."""
        usage = REQUEST_USAGE.get()
        if usage is not None and usage.trace is not None:
            return self._connection.send(packed)
        if self._queue is not self._connection.queue:
            self._queue, self._calls = self._connection.queue, {}
        only_reads = usage is not None and usage.only_reads
        shared = self._calls.get(packed)
        if shared is None or shared.usage.only_reads != only_reads or self._has_waited(shared):
            shared = SharedCall(only_reads=only_reads)
            token = REQUEST_USAGE.set(shared.usage)
            call = self._connection.send(packed, shared)
            REQUEST_USAGE.reset(token)
            if call.done():  # the queue is full: nothing will answer callers that would join
                return call
            self._calls[packed] = shared
            call.add_done_callback(partial(self._finish, shared, self._calls))
        if usage is not None:
            usage.trips += 1
        future: Future[Any] = self._connection.loop.create_future()
        shared.waiting.append((future, usage))
        return future

    def _has_waited(self, shared: SharedCall) -> bool:
        return self._connection.has_backlog and monotonic() - shared.since > MAX_JOIN_SECONDS

    def _finish(self, shared: SharedCall, calls: dict[bytes, SharedCall], call: Future[Any]) -> None:
        shared.end(call)
        if calls is self._calls:  # no caller can join them: let go of their replies
            self._queue, self._calls = None, {}
