"""The connection to Valkey: one per server, shared by all callers, with automatic pipelining.

Valkey replies in the order of the commands, so one connection serves any number of callers if replies are matched in
that order. `send` is a plain function: it queues a packed command and returns a future. At the end of the loop's tick
all commands of that tick leave in one write. hiredis parses the replies, which resolve the futures in order. There is
no pool, no lock and no coroutine per command, which is where other clients spend their time; `docs/connection.md` has
the measurements.

Commands that are not written yet are in `Connection.queue`, written ones in `_Socket.pending`. So an error knows
whether its command may have run.

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

from plaza.core.valkey.absent_replies import reads_as_absent, with_absent_replies
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
    ReplyError,
    ReplyGroup,
    all_or_first_error,
    error_reply,
    fail,
    with_command,
)
from plaza.core.valkey.connection_fencing import FencedConnection, own_name_prefix

# Bytes parsed at a time. hiredis moves its unparsed bytes after each kilobyte that it has parsed, so small chunks make
# a page of hashes a sixth cheaper. A large reply also blocks other callers for less time.
_PARSE_CHUNK_BYTES = 16_384
_INCOMPLETE = object()  # hiredis' default, False, is also the value of a RESP3 boolean
_Push = hiredis.PushNotification
OnErrorReply = Callable[["Connection", PendingCall, Exception], bool]
pack = cast(Callable[[tuple[Arg, ...]], bytes], hiredis.pack_command)  # its stub only knows commands of one word


class _Socket(asyncio.Protocol):
    """One TCP or unix connection: the calls that were written and not answered yet, in order."""

    __slots__ = (
        "closed",
        "connection",
        "fenced",
        "last_received",
        "parsed_bytes",
        "paused",
        "pending",
        "reader",
        "transport",
        "unparsed",
    )

    def __init__(self, connection: Connection, reader: Any) -> None:
        self.connection = connection
        self.reader = reader
        self.pending: deque[PendingCall] = deque()
        self.unparsed: deque[bytes] = deque()
        self.parsed_bytes = 0  # of the first of `unparsed`
        self.transport: asyncio.Transport
        self.paused = False
        self.last_received = monotonic()
        self.closed = asyncio.Event()
        self.fenced: FencedConnection | None = None  # for errors, once this connection has broken

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit from it
        CONNECTION_STATS.sockets.add(self)
        sock: socket.socket | None = transport.get_extra_info("socket")
        if sock is not None and sock.family != socket.AF_UNIX:
            _enable_keepalive(sock)

    def data_received(self, data: bytes) -> None:
        self.last_received = monotonic()
        if self.unparsed:
            self.unparsed.append(data)
        elif len(data) <= _PARSE_CHUNK_BYTES:
            self.reader.feed(data)
            self._handle_replies()
        else:
            self.unparsed.append(data)
            self._parse_chunk()

    def _parse_chunk(self) -> None:
        """Parse one chunk; the next one is parsed after the callers of these replies have run."""
        if not self.unparsed:  # all was parsed when the connection ended
            return
        data, at = self.unparsed[0], self.parsed_bytes
        self.reader.feed(data, at, min(_PARSE_CHUNK_BYTES, len(data) - at))
        self.parsed_bytes += _PARSE_CHUNK_BYTES
        if self.parsed_bytes >= len(data):
            self.unparsed.popleft()
            self.parsed_bytes = 0
        self._handle_replies()
        if self.unparsed:
            self.connection.loop.call_soon(self._parse_chunk)

    def _handle_replies(self) -> None:
        try:
            self._match_replies()
        except (hiredis.ProtocolError, IndexError):
            self.unparsed.clear()  # the following bytes cannot be parsed
            self.connection.abandon(self)
        if self.connection.has_backlog:
            self.connection.flush()

    def _match_replies(self) -> None:
        """Resolve the calls of all complete replies, in order."""
        now, pending, gets = self.last_received, self.pending, self.reader.gets
        while (reply := gets()) is not _INCOMPLETE:
            if reply.__class__ is _Push:
                self.connection.on_push(reply)
                continue
            _, future, group, usage, since, _ = call = pending[0]
            if group is not None:
                group.replies.append(reply)
                if len(group.replies) < group.count:
                    continue
            pending.popleft()
            if future.done():  # cancelled or timed out
                continue
            if usage is not None:
                usage.seconds += now - since
                if usage.trace is not None:
                    usage.trace.add_valkey_call(call, now, reply)
            if group is not None:
                _finish_group(call, group, self.connection.resp)
            elif isinstance(reply, Exception):
                self.connection.handle_error_reply(call, reply)
            else:
                future.set_result(reply)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        self.connection.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        CONNECTION_STATS.sockets.discard(self)
        while self.unparsed:  # these replies did arrive
            self._parse_chunk()
        self.closed.set()
        self.connection.lost(self, exc)


def _enable_keepalive(sock: socket.socket) -> None:
    """Let the kernel notice a peer that vanished: after 15 s of silence it sends three probes."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _finish_group(call: PendingCall, group: ReplyGroup, resp: int) -> None:
    packed, future, _, usage, *_ = call
    try:
        try:
            future.set_result(group.finish(group.replies))
        except ReplyError as error:
            if not reads_as_absent(with_command(packed, error), usage):
                raise
            future.set_result(group.finish(with_absent_replies(packed, group.replies, resp)))
    except Exception as error:
        future.set_exception(with_command(packed, error))


def _ignore_push(message: list[Any]) -> None:
    return


class Connection:
    """A connection that reconnects whenever it breaks."""

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
        on_error_reply: OnErrorReply | None = None,
    ) -> None:
        self.address = address
        self.options = options
        self.resp = resp
        self.text = text
        self.tracking = tracking
        self.on_push = on_push or _ignore_push
        self.has_backlog = False  # the queue has calls of earlier ticks
        self._on_down = on_down
        self._on_error_reply = on_error_reply
        self.loop = asyncio.get_running_loop()
        self._new_future = self.loop.create_future
        self._timeout = options.timeout
        self._check_seconds = min(options.queue_timeout, options.timeout) / 4
        self.queue: list[PendingCall] = []
        self._socket: _Socket | None = None
        self._since = self._until = 0.0
        self._checking: asyncio.TimerHandle | None = None
        self._down_since = monotonic()
        self._down_reason = f"Valkey at {address} has not answered yet."
        self._up: asyncio.Future[None] = self._new_future()
        self._tried = asyncio.Event()
        # A new context, so that reconnecting is not counted for the request that made the connection.
        self._connecting: asyncio.Task[None] | None = asyncio.create_task(self._stay_connected(), context=Context())

    def send(self, packed: bytes, group: ReplyGroup | None = None, timeout: float | None = None) -> asyncio.Future[Any]:
        """Queue one packed command, or as many as `group` counts."""
        future = self._new_future()
        usage = REQUEST_USAGE.get()
        if usage is not None:
            usage.trips += 1
        queue = self.queue
        if not queue:
            self._since = monotonic()
            self._until = self._since + self._timeout
            self.loop.call_soon(self.flush)
        elif self.has_backlog:
            self._since = monotonic()
            self._until = self._since + self._timeout
            if len(queue) >= self.options.max_queued:
                CONNECTION_STATS.failures += 1
                future.set_exception(Overloaded(f"Too many calls wait for Valkey at {self.address}."))
                return future
        if timeout is None:
            queue.append((packed, future, group, usage, self._since, self._until))
        else:
            call = (packed, future, group, usage, self._since, monotonic() + timeout)
            queue.append(call)
            timer = self.loop.call_later(timeout, self._expire, call)
            future.add_done_callback(lambda _: timer.cancel())
        return future

    def send_unchecked(self, *command: Arg) -> asyncio.Future[Any]:
        """Send any command, without the check for shared connections."""
        return self.send(pack(command))

    def flush(self) -> None:
        """Write the queued commands, if the connection is up and accepts them."""
        sock, queue = self._socket, self.queue
        if self._checking is None:
            self._checking = self.loop.call_later(self._check_seconds, self._check_timeouts)
        if sock is None or sock.paused:
            self.has_backlog = bool(queue)
            if sock is None and monotonic() - self._down_since > self.options.queue_timeout:
                self._fail_unwritten(queue)
            return
        if self.has_backlog:  # calls that failed meanwhile must not be written: their error says that they did not run
            queue[:] = [call for call in queue if not call[1].done()]
        room = self.options.max_in_flight - len(sock.pending)
        if len(queue) > room:
            batch, self.queue, self.has_backlog = queue[:room], queue[room:], True
        else:
            batch, self.queue, self.has_backlog = queue, [], False
        if batch:
            CONNECTION_STATS.trips += len(batch)
            sock.pending.extend(batch)
            sock.transport.write(b"".join([call[0] for call in batch]))

    def handle_error_reply(self, call: PendingCall, error: Exception) -> None:
        """Fail a call that Valkey answered with an error, unless `on_error_reply` handles it."""
        packed, future, _, usage, *_ = call
        reply = with_command(packed, error)
        if reads_as_absent(error, usage):
            (reply,) = with_absent_replies(packed, [error], self.resp)
        if reply is not error:
            future.set_result(reply)
        elif self._on_error_reply is None or not self._on_error_reply(self, call, error):
            future.set_exception(error)

    def lost(self, sock: _Socket, exc: Exception | None) -> None:
        """Fail the calls of a connection that ended; they may have run."""
        reason = f"The connection to Valkey at {self.address} broke" + (f": {exc}." if exc else ".")
        now = monotonic()
        for call in sock.pending:
            fail(call, ConnectionLost(reason, may_have_run=True, fenced=sock.fenced), now)
        sock.pending.clear()
        if sock is self._socket:
            self._socket, self._down_since, self._down_reason = None, now, reason
            self._up = self._new_future()
            if self._on_down is not None:
                self._on_down()

    @property
    def connected(self) -> bool:
        return self._socket is not None

    async def ready(self) -> None:
        """Wait for the connection, at most as long as a call would."""
        done, _ = await asyncio.wait([self._up], timeout=self.options.queue_timeout)
        if not done:
            raise ConnectionLost(self._down_reason, may_have_run=False)

    def drop(self) -> None:
        """Break the connection, so that Valkey stops what it does for this caller."""
        if self._socket is not None:
            self.abandon(self._socket)

    def abandon(self, sock: _Socket) -> None:
        """Close a socket and fail its calls. New calls wait for the next connection."""
        sock.transport.abort()
        self.lost(sock, None)

    async def close(self) -> None:
        """Close permanently. Waiting calls fail."""
        if self._connecting is None:
            return
        connecting, self._connecting = self._connecting, None
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)
        self._on_down = None
        sock = self._socket
        if sock is not None:
            sock.transport.abort()
            await sock.closed.wait()
        # Set after `lost`, which sets its own reason. Later calls fail at once.
        self._down_reason, self._down_since = f"The connection to Valkey at {self.address} is closed.", float("-inf")
        if self._checking is not None:
            self._checking.cancel()
            self._checking = None
        self._fail_unwritten(self.queue)

    async def _stay_connected(self) -> None:
        failures = losses = 0
        while True:
            try:
                sock = await _open_socket(self)
            except Exception as error:
                # The next attempt may succeed; until then calls fail with this reason. The text comes from the server
                # or the system and never contains what we sent.
                reason = str(error).rstrip(".") or "it does not answer"
                self._down_reason = f"Valkey at {self.address} cannot be reached: {reason}."
                self._tried.set()
            else:
                since = monotonic()
                if not sock.closed.is_set():
                    CONNECTION_STATS.reconnects += losses > 0
                    self._socket = sock
                    self._up.set_result(None)
                    self._tried.set()
                    self.flush()
                    await sock.closed.wait()
                    losses += 1
                if monotonic() - since > self.options.max_backoff:
                    failures = 0
            failures += 1
            longest = min(self.options.backoff * 2**failures, self.options.max_backoff)
            # Full jitter, so that many processes do not reconnect at the same moment.
            await asyncio.sleep(random.uniform(0, longest))

    def _check_timeouts(self) -> None:
        """Fail all calls whose time is over, written or not. One timer serves all calls."""
        now = monotonic()
        sock = self._socket
        if sock is not None:
            for call in sock.pending:
                if call[5] <= now:
                    fail(call, _timeout(self.address, may_have_run=True), now)
            # The kernel still acknowledges for a server process that hangs, so only its silence tells.
            silent_since = now - 2 * self._timeout
            first = sock.pending[0] if sock.pending else None
            if first is not None and first[1].done() and max(sock.last_received, first[4]) < silent_since:
                self.abandon(sock)
        if self.queue:
            # After a stall of the loop this runs before the pending flush. Those calls waited for the loop only.
            self.flush()
        oldest = now - self.options.queue_timeout
        self._fail_unwritten([call for call in self.queue if call[4] <= oldest])
        busy = self.queue or (sock is not None and sock.pending)
        self._checking = self.loop.call_later(self._check_seconds, self._check_timeouts) if busy else None

    def _expire(self, call: PendingCall) -> None:
        """Fail a call with a timeout of its own."""
        sent = not any(other is call for other in self.queue)
        self.has_backlog = self.has_backlog or not sent  # so that `flush` does not write it
        fail(call, _timeout(self.address, may_have_run=sent), monotonic())

    def _fail_unwritten(self, calls: list[PendingCall]) -> None:
        """Fail calls that were never written."""
        if not calls:
            return
        now = monotonic()
        for call in calls:
            error = (
                ConnectionLost(self._down_reason, may_have_run=False)
                if self._socket is None
                else Overloaded(f"Too many calls to Valkey at {self.address} are in flight.")
            )
            fail(call, error, now)
        self.queue = [call for call in self.queue if not call[1].done()]
        self.has_backlog = bool(self.queue)


async def first_attempt(connection: Connection) -> None:
    """Wait for the end of the first attempt to connect. Raises `ConnectionLost` with the reason if it failed."""
    await connection._tried.wait()
    if connection._socket is None:
        raise ConnectionLost(connection._down_reason, may_have_run=False)


def _timeout(address: Address, *, may_have_run: bool) -> CallTimeout:
    return CallTimeout(f"Valkey at {address} did not answer in time.", may_have_run=may_have_run)


async def _open_socket(connection: Connection) -> _Socket:
    """Connect, authenticate and select the database."""
    text: dict[str, Any] = {"encoding": "utf-8", "errors": "replace"} if connection.text else {}
    sock = _Socket(connection, hiredis.Reader(replyError=error_reply, notEnoughData=_INCOMPLETE, **text))
    address, loop = connection.address, connection.loop
    async with asyncio.timeout(connection.options.connect_timeout):
        if address.path:
            await loop.create_unix_connection(lambda: sock, address.path)
        else:
            await loop.create_connection(lambda: sock, address.host, address.port, ssl=address.tls)
        try:
            await _handshake(connection, sock)
        except BaseException:
            sock.transport.abort()
            raise
    return sock


async def _handshake(connection: Connection, sock: _Socket) -> None:
    address = connection.address
    name = f"{own_name_prefix()}{secrets.token_hex(6)}"
    hello: tuple[Arg, ...] = ("HELLO", connection.resp, "SETNAME", name)
    if address.password:
        hello = (*hello[:2], "AUTH", address.username or "default", address.password, *hello[2:])
    commands: list[tuple[Arg, ...]] = [hello]
    if address.database:
        commands.append(("SELECT", address.database))
    required = len(commands)
    commands.append(("PING",))
    if connection.tracking:
        # With OPTIN it costs nothing until a read asks for tracking. A user without permission goes without.
        commands.append(("CLIENT", "TRACKING", "ON", "OPTIN"))
    future = connection.loop.create_future()
    now = monotonic()
    group = ReplyGroup(len(commands), lambda replies: _check_handshake(replies, required))
    sock.pending.append((b"", future, group, None, now, now + connection.options.connect_timeout))
    sock.transport.write(b"".join(map(pack, commands)))
    try:
        await future
    except ConnectionLost:
        all_or_first_error(group.replies)  # a server with too many clients says so before it closes the connection
        raise
    if isinstance(group.replies[0], dict):  # RESP3
        sock.fenced = FencedConnection(connection, group.replies[0]["id"], name)


def _check_handshake(replies: list[Any], required: int) -> None:
    """Raise an error that makes the connection useless. A user without permission for PING can still use it."""
    all_or_first_error(replies[:required])
    # A server that loads its data accepts connections. Treat it as not reachable yet, so that calls wait. One that
    # cannot write to its disk (MISCONF) can be read.
    ping = replies[required]
    if isinstance(ping, NotReady) and ping.reply != "MISCONF":
        raise ping
