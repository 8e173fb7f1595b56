"""The connection to Valkey: one per server, shared by every caller, pipelined by itself.

Valkey answers in the order it was asked, so one connection carries any number of callers as long as replies are
matched in that order. `call` is a plain function: it packs the command, puts it in a queue and returns a future. At the
end of the loop's tick all commands of that tick leave in one write, and what comes back is parsed by hiredis and given
to the futures in order. There is no pool, no lock and no coroutine per command, which is where other clients spend
their time; `docs/connection.md` has the measurements.

Commands that are not written yet wait in `Connection._queue`, written ones in `_Socket.pending`. That is how an error
knows whether its command may have run.

This is the only file that imports hiredis.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import socket
from collections import deque
from collections.abc import Callable
from contextvars import Context
from time import monotonic
from typing import Any, cast

import hiredis

from plaza.core.valkey.address import Address
from plaza.core.valkey.calls import (
    CONNECTION_STATS,
    REQUEST_USAGE,
    Arg,
    CallTimeout,
    ConnectionLost,
    ConnectionOptions,
    NotReady,
    Overloaded,
    PendingCall,
    ReplyGroup,
    all_or_first_error,
    error_reply,
    fail,
    with_command,
)
from plaza.core.valkey.connection_fencing import FencedConnection

# Bytes parsed at a time. hiredis moves all it has not parsed yet each time it has parsed a kilobyte, so a page of
# hashes costs a sixth less than when a full socket buffer is handed over; and a large reply holds up nobody for long.
_PARSE_CHUNK_BYTES = 16_384
_MORE = object()  # hiredis' default, False, is also what a RESP3 boolean looks like
_Push = hiredis.PushNotification
OnErrorReply = Callable[["Connection", PendingCall, Exception], bool]
pack = cast(Callable[[tuple[Arg, ...]], bytes], hiredis.pack_command)  # its stub knows one-word commands only


class _Socket(asyncio.Protocol):
    """One connection from its first byte to its last: what was written and not answered yet, in order."""

    __slots__ = ("connection", "eaten", "fenced", "gone", "heard", "paused", "pending", "reader", "transport", "unread")

    def __init__(self, connection: Connection, reader: Any) -> None:
        self.connection = connection
        self.reader = reader
        self.pending: deque[PendingCall] = deque()
        self.unread: deque[bytes] = deque()
        self.eaten = 0  # bytes of the first of `unread`
        self.transport: asyncio.Transport
        self.paused = False
        self.heard = monotonic()
        self.gone = asyncio.Event()
        self.fenced: FencedConnection | None = None  # what it will be once it has broken

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's do not inherit from it
        CONNECTION_STATS.links.add(self)
        sock: socket.socket | None = transport.get_extra_info("socket")
        if sock is not None and sock.family != socket.AF_UNIX:
            _keep_alive(sock)

    def data_received(self, data: bytes) -> None:
        self.heard = monotonic()
        if self.unread:
            self.unread.append(data)
        elif len(data) <= _PARSE_CHUNK_BYTES:
            self.reader.feed(data)
            self._answer()
        else:
            self.unread.append(data)
            self._parse_chunk()

    def _parse_chunk(self) -> None:
        """Parse one mouthful of what came; the rest waits until those who got their answers have had a turn."""
        if not self.unread:  # all was parsed when the connection ended
            return
        data, at = self.unread[0], self.eaten
        self.reader.feed(data, at, min(_PARSE_CHUNK_BYTES, len(data) - at))
        self.eaten += _PARSE_CHUNK_BYTES
        if self.eaten >= len(data):
            self.unread.popleft()
            self.eaten = 0
        self._answer()
        if self.unread:
            self.connection.loop.call_soon(self._parse_chunk)

    def _answer(self) -> None:
        try:
            self._match()
        except (hiredis.ProtocolError, IndexError):
            self.unread.clear()  # what follows cannot be told apart any more
            self.connection.abandon(self)
        if self.connection.late:
            self.connection.flush()

    def _match(self) -> None:
        """Give every whole reply to who waits for it."""
        now, pending, gets = self.heard, self.pending, self.reader.gets
        while (reply := gets()) is not _MORE:
            if reply.__class__ is _Push:
                self.connection.pushed(reply)
                continue
            _, future, gather, usage, since, _ = entry = pending[0]
            if gather is not None:
                gather.replies.append(reply)
                if len(gather.replies) < gather.count:
                    continue
            pending.popleft()
            if future.done():  # cancelled or timed out: its reply is nobody's
                continue
            if usage is not None:
                usage.seconds += now - since
            if gather is not None:
                _finish(entry, gather)
            elif isinstance(reply, Exception):
                self.connection.refused(entry, reply)
            else:
                future.set_result(reply)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        self.connection.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        CONNECTION_STATS.links.discard(self)
        while self.unread:  # these replies did arrive
            self._parse_chunk()
        self.gone.set()
        self.connection.lost(self, exc)


def _keep_alive(sock: socket.socket) -> None:
    """Have the kernel notice a peer that vanished without a word: 15 s of silence, then three probes."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _finish(entry: PendingCall, gather: ReplyGroup) -> None:
    packed, future, *_ = entry
    try:
        future.set_result(gather.finish(gather.replies))
    except Exception as error:
        future.set_exception(with_command(packed, error))


class Connection:
    """A connection that is made again whenever it breaks."""

    def __init__(
        self,
        address: Address,
        options: ConnectionOptions,
        *,
        resp: int = 3,
        text: bool = True,
        tracking: bool = False,
        on_push: Callable[[list[Any]], None] | None = None,
        on_down: Callable[[], None] | None = None,
        on_refused: OnErrorReply | None = None,
    ) -> None:
        self.address = address
        self.options = options
        self.late = False  # the queue holds calls of earlier ticks
        self.text = text
        self._resp = resp
        self._tracking = tracking
        self._on_push = on_push
        self._on_down = on_down
        self._on_refused = on_refused
        self.loop = asyncio.get_running_loop()
        self._new_future = self.loop.create_future
        self._timeout = options.timeout
        self._queue: list[PendingCall] = []
        self._link: _Socket | None = None
        self._since = self._until = 0.0
        self._sweeping: asyncio.TimerHandle | None = None
        self._down_since = monotonic()
        self._why = f"Valkey at {address} has not answered yet."
        self._up: asyncio.Future[None] = self._new_future()
        # A context of its own, so that the work of staying connected is nobody's usage.
        self._keeper: asyncio.Task[None] | None = asyncio.create_task(self._keep(), context=Context())

    def send(
        self, packed: bytes, gather: ReplyGroup | None = None, timeout: float | None = None
    ) -> asyncio.Future[Any]:
        """Queue bytes that are already a whole command, or as many as `gather` counts."""
        future = self._new_future()
        usage = REQUEST_USAGE.get()
        if usage is not None:
            usage.trips += 1
        queue = self._queue
        if not queue:
            self._since = monotonic()
            self._until = self._since + self._timeout
            self.loop.call_soon(self.flush)
        elif self.late:
            self._since = monotonic()
            self._until = self._since + self._timeout
            if len(queue) >= self.options.waiting:
                CONNECTION_STATS.failures += 1
                future.set_exception(Overloaded(f"Too many calls wait for Valkey at {self.address} already."))
                return future
        if timeout is None:
            queue.append((packed, future, gather, usage, self._since, self._until))
        else:
            self._send_until(timeout, (packed, future, gather, usage, self._since, monotonic() + timeout))
        return future

    def ask(self, *command: Arg) -> asyncio.Future[Any]:
        """One command, whatever it is."""
        return self.send(pack(command))

    def _send_until(self, timeout: float, entry: PendingCall) -> None:
        self._queue.append(entry)
        timer = self.loop.call_later(timeout, self._expire, entry)
        entry[1].add_done_callback(lambda _: timer.cancel())

    def flush(self) -> None:
        """Write what is queued, as far as there is a connection that takes it."""
        link, queue = self._link, self._queue
        if self._sweeping is None:
            self._sweeping = self.loop.call_later(self._pace(), self._sweep)
        if link is None or link.paused:
            self.late = bool(queue)
            if link is None and monotonic() - self._down_since > self.options.patience:
                self._give_up(queue)
            return
        if self.late:  # some may have been given up since they were queued; those were told it did not run
            queue[:] = [entry for entry in queue if not entry[1].done()]
        room = self.options.in_flight - len(link.pending)
        if len(queue) > room:
            now, self._queue, self.late = queue[:room], queue[room:], True
        else:
            now, self._queue, self.late = queue, [], False
        if now:
            CONNECTION_STATS.trips += len(now)
            link.pending.extend(now)
            link.transport.write(b"".join([entry[0] for entry in now]))

    def pushed(self, message: list[Any]) -> None:
        if self._on_push is not None:
            self._on_push(message)

    def refused(self, entry: PendingCall, error: Exception) -> None:
        """Valkey answered with an error: the caller's, unless someone knows what to do about it."""
        if self._on_refused is None or not self._on_refused(self, entry, error):
            entry[1].set_exception(with_command(entry[0], error))

    def lost(self, link: _Socket, exc: Exception | None) -> None:
        """A connection ended: what it carried may have run."""
        reason = f"The connection to Valkey at {self.address} broke" + (f": {exc}." if exc else ".")
        now = monotonic()
        for entry in link.pending:
            fail(entry, ConnectionLost(reason, may_have_run=True, fenced=link.fenced), now)
        link.pending.clear()
        if link is self._link:
            self._link, self._down_since, self._why = None, now, reason
            self._up = self._new_future()
            if self._on_down is not None:
                self._on_down()

    @property
    def connected(self) -> bool:
        return self._link is not None

    async def ready(self) -> None:
        """Wait for the connection, for as long as a call would."""
        done, _ = await asyncio.wait([self._up], timeout=self.options.patience)
        if not done:
            raise ConnectionLost(self._why, may_have_run=False)

    def drop(self) -> None:
        """Break the connection on purpose, so that what it waits for is not done for nobody."""
        if self._link is not None:
            self.abandon(self._link)

    def abandon(self, link: _Socket) -> None:
        """Have nothing more to do with a connection; what it carried fails now, what comes waits for the next."""
        link.transport.abort()
        self.lost(link, None)

    async def close(self) -> None:
        """End for good. Calls that still wait fail."""
        if self._keeper is None:
            return
        keeper, self._keeper = self._keeper, None
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
        self._on_down = None
        link = self._link
        if link is not None:
            link.transport.abort()
            await link.gone.wait()
        # After the loss of the connection, which notes its own: a call that still comes fails at once.
        self._why, self._down_since = f"The connection to Valkey at {self.address} is closed.", float("-inf")
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        self._give_up(self._queue)

    async def _keep(self) -> None:
        failures = losses = 0
        while True:
            try:
                link = await self._open()
            except Exception as error:
                # Whatever it was, the next attempt may do better; until then every call that fails says why.
                # These are the server's or the system's words, which never include what we sent.
                reason = str(error).rstrip(".") or "it does not answer"
                self._why = f"Valkey at {self.address} cannot be reached: {reason}."
            else:
                since = monotonic()
                if not link.gone.is_set():
                    CONNECTION_STATS.reconnects += losses > 0
                    self._link = link
                    self._up.set_result(None)
                    self.flush()
                    await link.gone.wait()
                    losses += 1
                if monotonic() - since > self.options.backoff_most:
                    failures = 0
            failures += 1
            most = min(self.options.backoff * 2**failures, self.options.backoff_most)
            # Full jitter: many processes that lost one server do not come back in step.
            await asyncio.sleep(random.uniform(0, most))

    async def _open(self) -> _Socket:
        kind: dict[str, Any] = {"encoding": "utf-8", "errors": "replace"} if self.text else {}
        link = _Socket(self, hiredis.Reader(replyError=error_reply, notEnoughData=_MORE, **kind))
        address = self.address
        async with asyncio.timeout(self.options.connect_timeout):
            if address.path:
                await self.loop.create_unix_connection(lambda: link, address.path)
            else:
                await self.loop.create_connection(lambda: link, address.host, address.port, ssl=address.tls)
            try:
                await self._greet(link)
            except BaseException:
                link.transport.abort()
                raise
        return link

    async def _greet(self, link: _Socket) -> None:
        address = self.address
        name = f"plaza-{secrets.token_hex(6)}"
        hello: tuple[Arg, ...] = ("HELLO", self._resp, "SETNAME", name)
        if address.password:
            hello = (*hello[:2], "AUTH", address.username or "default", address.password, *hello[2:])
        commands: list[tuple[Arg, ...]] = [hello]
        if address.database:
            commands.append(("SELECT", address.database))
        needed = len(commands)
        commands.append(("PING",))
        if self._tracking:
            # It costs nothing until a read asks for it, and a user who may not have it can do without.
            commands.append(("CLIENT", "TRACKING", "ON", "OPTIN"))
        future = self._new_future()
        now = monotonic()
        gather = ReplyGroup(len(commands), lambda replies: _welcome(replies, needed))
        link.pending.append((b"", future, gather, None, now, now + self.options.connect_timeout))
        link.transport.write(b"".join(map(pack, commands)))
        try:
            await future
        except ConnectionLost:
            all_or_first_error(gather.replies)  # a server that is full says so before it hangs up
            raise
        if isinstance(gather.replies[0], dict):  # RESP3
            link.fenced = FencedConnection(self, gather.replies[0]["id"], name)

    def _pace(self) -> float:
        return min(self.options.patience, self._timeout) / 4

    def _sweep(self) -> None:
        """One timer for all calls: fail those whose time is over, in both queues."""
        now = monotonic()
        link = self._link
        if link is not None:
            for entry in link.pending:
                if entry[5] <= now:
                    fail(entry, CallTimeout(self._silence(), may_have_run=True), now)
            silent = now - 2 * self._timeout
            # The kernel still acknowledges for a process that hangs: only its silence tells.
            if link.pending and link.pending[0][1].done() and max(link.heard, link.pending[0][4]) < silent:
                self.abandon(link)
        if self._queue:
            # After a stall of the loop this comes before the write that was due: those calls have waited for us alone.
            self.flush()
        patience = now - self.options.patience
        self._give_up([entry for entry in self._queue if entry[4] <= patience])
        busy = self._queue or (link is not None and link.pending)
        self._sweeping = self.loop.call_later(self._pace(), self._sweep) if busy else None

    def _expire(self, entry: PendingCall) -> None:
        """A call's own time is over."""
        sent = not any(other is entry for other in self._queue)
        self.late = self.late or not sent  # so that it is not written after all
        fail(entry, CallTimeout(self._silence(), may_have_run=sent), monotonic())

    def _silence(self) -> str:
        return f"Valkey at {self.address} did not answer in time."

    def _give_up(self, entries: list[PendingCall]) -> None:
        """Fail calls that were never written."""
        if not entries:
            return
        now = monotonic()
        for entry in entries:
            error = (
                ConnectionLost(self._why, may_have_run=False)
                if self._link is None
                else Overloaded(f"Too many calls to Valkey at {self.address} are in flight.")
            )
            fail(entry, error, now)
        self._queue = [entry for entry in self._queue if not entry[1].done()]
        self.late = bool(self._queue)


def _welcome(replies: list[Any], needed: int) -> None:
    """Raise what keeps a connection from being of use. One that may not PING is."""
    all_or_first_error(replies[:needed])
    # A server that still loads its data takes connections. Calls wait for it as they do for one that is not there yet.
    if isinstance(replies[needed], NotReady):
        raise replies[needed]
