"""A cluster behind the same words as one server.

Every node has its own shared connection, and a table of 16,384 slots says which node a key lives on. The table is
believed until a node says otherwise: a MOVED answer corrects one slot at once and has the whole table read again, and
so does a node that goes away. A caller sees none of this. What was answered with a redirection did not run, so it is
sent again to where it belongs, within the time the call has; what was in flight on a broken connection may have run,
and is never sent again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from contextvars import Context
from time import monotonic
from typing import Any

from plaza.core.errors import Unavailable
from plaza.core.valkey.address import Address
from plaza.core.valkey.calls import (
    REQUEST_USAGE,
    Arg,
    ConnectionLost,
    ConnectionOptions,
    NotReady,
    PendingCall,
    ReplyError,
    all_or_first_error,
    exec_replies,
    exec_replies_or_error,
    fail,
)
from plaza.core.valkey.client import InvalidationListeners, OnInvalidate, Valkey
from plaza.core.valkey.cluster_batch import ClusterBatch
from plaza.core.valkey.cluster_blocking import ClusterBlocking
from plaza.core.valkey.command_guard import ALLOWED_NAMES, check_all_allowed, check_allowed
from plaza.core.valkey.connection import Connection, pack
from plaza.core.valkey.dedicated import Subscription
from plaza.core.valkey.redirects import Resend, is_redirect, out_of_time, resend, single_reply
from plaza.core.valkey.slots import SLOTS, common_slot, first_key, key_slot
from plaza.core.valkey.standalone import EXEC, MULTI, StandaloneValkey, resolved_future

# A redirection is followed at once the first two times; after that the cluster is changing, and gets time to.
_AT_ONCE = 2
_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 0.4
# Between two readings of the table: when many were told that it changed, and while a primary is away.
_CALM_SECONDS = 0.05
_LOOK_AGAIN_SECONDS = 0.3


class ClusterValkey(Valkey):
    """All primaries of a Valkey cluster."""

    clustered = True

    def __init__(self, seeds: Sequence[Address], options: ConnectionOptions) -> None:
        self.options = options
        self._seeds = list(seeds)
        self._known: list[Address] = []  # every node of the last table, also replicas
        self._nodes: dict[tuple[str, int], StandaloneValkey] = {}
        self._slots: list[StandaloneValkey | None] = [None] * SLOTS
        self._primaries: list[StandaloneValkey] = []
        self._listeners = InvalidationListeners()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._changed = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Valkey cluster at {', '.join(map(str, self._seeds))}>"

    async def ready(self) -> None:
        """Read the table of slots, and keep it true from then on."""
        if not await self._read_table():
            raise ConnectionLost(f"No node of {self!r} answers.", may_have_run=False)
        self.start(self._watch())

    def call(
        self, *command: Arg, timeout: float | None = None, raw: bool = False, key: str | None = None
    ) -> asyncio.Future[Any]:
        if command[0] not in ALLOWED_NAMES:
            check_allowed(command)
        packed = pack(command)
        return self.home(first_key(command) if key is None else key).lane(raw).send(packed, None, timeout)

    def batch(
        self,
        commands: Sequence[Sequence[Arg]],
        *,
        timeout: float | None = None,
        raw: bool = False,
        return_errors: bool = False,
    ) -> asyncio.Future[list[Any]]:
        check_all_allowed(commands)
        packed = [pack(tuple(command)) for command in commands]
        if not packed:
            return resolved_future([])
        places: dict[StandaloneValkey, list[int]] = {}
        for i, command in enumerate(commands):
            places.setdefault(self.home(first_key(command)), []).append(i)
        whole = ClusterBatch(self, packed, len(places), self.until(timeout), return_errors)
        counted = REQUEST_USAGE.get()
        for server, where in places.items():
            theirs = [commands[i] for i in where], [packed[i] for i in where]
            whole.add(where, *server.part(*theirs, list, timeout, raw))
            REQUEST_USAGE.set(None)  # the parts travel side by side, so they are one round trip
        REQUEST_USAGE.set(counted)
        return whole.answer

    def multi(
        self,
        commands: Sequence[Sequence[Arg]],
        *,
        timeout: float | None = None,
        raw: bool = False,
        return_errors: bool = False,
    ) -> asyncio.Future[list[Any]]:
        check_all_allowed(commands)
        packed = [pack(tuple(command)) for command in commands]
        if not packed:
            return resolved_future([])
        slot = common_slot(commands)
        connection = (self._any() if slot is None else self._at(slot)).lane(raw)
        finish = exec_replies if return_errors else exec_replies_or_error
        again = resend(b"".join((MULTI, *packed, EXEC)), len(packed) + 2, finish, self.until(timeout))
        return self.start(self.insist(again(connection, False), connection, self.until(timeout), again))

    def tracked(
        self, *command: Arg, store: Callable[[Any], Any] | None = None, timeout: float | None = None
    ) -> asyncio.Future[Any]:
        check_allowed(command)
        key, packed, until = first_key(command), pack(command), self.until(timeout)

        def unkept(replies: list[Any]) -> Any:
            # A key on the move cannot be tracked (ASKING and CACHING each hold for the very next command), so what was
            # read is given up at once.
            reply = all_or_first_error(replies)[0]
            kept = reply if store is None else store(reply)
            self._listeners.tell([str(key)])
            return kept

        def again(connection: Connection, asking: bool) -> Awaitable[Any]:
            if asking:
                return resend(packed, 1, unkept, until)(connection, True)
            return self._node(connection.address).tracked(*command, store=store, timeout=max(until - monotonic(), 0))

        connection = self.home(key).lane(False)
        return self.start(self.insist(again(connection, False), connection, until, again))

    def on_invalidate(self, callback: OnInvalidate) -> Callable[[], None]:
        return self._listeners.add(callback)

    def subscribe(self, *channels: str) -> Subscription:
        return self._any().subscribe(*channels)

    @asynccontextmanager
    async def blocking(self) -> AsyncIterator[ClusterBlocking]:
        roaming = ClusterBlocking(self)
        try:
            yield roaming
        finally:
            await roaming.close()

    def primaries(self) -> list[StandaloneValkey]:
        return list(self._primaries)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(node.close() for node in self._nodes.values()))

    def home(self, key: Arg | None) -> StandaloneValkey:
        """Where a key lives, as far as we know."""
        return self._any() if key is None else self._at(key_slot(key))

    def until(self, timeout: float | None) -> float:
        return monotonic() + (self.options.timeout if timeout is None else timeout)

    def _at(self, slot: int) -> StandaloneValkey:
        # A node that does not serve the slot either says who does, or that nobody does.
        return self._slots[slot] or self._any()

    def _any(self) -> StandaloneValkey:
        up = [server for server in self._primaries if server.connected]
        return random.choice(up or self._primaries)

    def _node(self, address: Address) -> StandaloneValkey:
        place = (address.host, address.port)
        if place not in self._nodes:
            server = StandaloneValkey(address, self.options, on_refused=self._refused, on_down=self._changed.set)
            server.on_invalidate(self._listeners.tell)
            self._nodes[place] = server
        return self._nodes[place]

    def start(self, work: Coroutine[Any, Any, Any], context: Context | None = None) -> asyncio.Task[Any]:
        task = asyncio.create_task(work, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _refused(self, connection: Connection, entry: PendingCall, error: Exception) -> bool:
        """A single call was answered with an error. If that is a redirection, it is ours to follow."""
        if not is_redirect(error):
            return False
        context = Context()
        context.run(REQUEST_USAGE.set, entry[3])
        task = self.start(self._follow(connection, entry, error), context)
        entry[1].add_done_callback(lambda _: task.cancel())  # a caller who gave up wants nothing sent any more
        return True

    async def _follow(self, connection: Connection, entry: PendingCall, error: Exception) -> None:
        packed, future, _, _, _, until = entry
        try:
            reply = await self.retry(connection, error, until, resend(packed, 1, single_reply, until))
        except asyncio.CancelledError:
            fail(entry, self.closed(), monotonic())
            raise
        except Exception as last:
            if not future.done():
                future.set_exception(last)
        else:
            if not future.done():
                future.set_result(reply)

    def closed(self) -> ConnectionLost:
        return ConnectionLost(f"The connection to {self!r} is closed.", may_have_run=True)

    async def insist(self, first: Awaitable[Any], connection: Connection, until: float, again: Resend) -> Any:
        """Await what was sent, and follow where it is redirected to."""
        try:
            return await first
        except (ReplyError, NotReady) as error:
            return await self.retry(connection, error, until, again)

    async def retry(self, connection: Connection, error: Exception, until: float, again: Resend) -> Any:
        """Send again to where an error says, until it is answered or its time is over."""
        asking = False
        attempt = 0
        while is_redirect(error):
            attempt += 1
            if attempt > _AT_ONCE or isinstance(error, NotReady):
                pause = random.uniform(0.5, 1) * min(_PAUSE_SECONDS * 2**attempt, _LONGEST_PAUSE_SECONDS)
                if monotonic() + pause >= until:
                    raise out_of_time(error)
                await asyncio.sleep(pause)
            connection, asking = self._whither(connection, asking, error)
            try:
                return await again(connection, asking)
            except (ReplyError, NotReady) as next_error:
                error = next_error
        raise error

    def _whither(self, connection: Connection, asking: bool, error: Exception) -> tuple[Connection, bool]:
        """Where to send next, and whether to say ASKING there. Learns from what the error says."""
        if not isinstance(error, ReplyError):
            self._changed.set()
            return connection, asking
        code, slot, place = error.message.split(" ")[:3]
        host, _, port = place.rpartition(":")
        # A node that does not know its own name leaves it out: it is where we reached it.
        address = connection.address.at(host if host not in ("", "?") else connection.address.host, int(port))
        server = self._node(address)
        if code == "MOVED":
            self._slots[int(slot)] = server
            self._changed.set()
        return server.lane(not connection.text), code == "ASK"

    async def _watch(self) -> None:
        """Read the table again whenever there is a reason to, and for as long as a primary is away."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            read = await self._read_table()
            if read and all(server.connected for server in self._primaries):
                await asyncio.sleep(_CALM_SECONDS)
            else:
                await asyncio.sleep(_LOOK_AGAIN_SECONDS * random.uniform(0.5, 1))
                self._changed.set()

    async def _read_table(self) -> bool:
        """Ask one node after the other; the first that answers is believed."""
        known = {(a.host, a.port): a for a in (*(s.address for s in self._primaries), *self._known, *self._seeds)}
        nodes = sorted(map(self._node, known.values()), key=lambda server: (not server.connected, random.random()))
        for server in nodes:
            try:
                rows = await server.call("CLUSTER", "SLOTS", timeout=self.options.connect_timeout)
            except (ReplyError, Unavailable):
                continue
            if rows:
                self._use(sorted(rows, key=lambda row: int(row[0])), server.address)
                return True
        return False

    def _use(self, rows: list[list[Any]], told_by: Address) -> None:
        slots: list[StandaloneValkey | None] = [None] * SLOTS
        primaries: list[StandaloneValkey] = []
        self._known = []
        for first, last, *nodes in rows:
            addresses = [told_by.at(node[0] or told_by.host, node[1]) for node in nodes]
            self._known += addresses
            server = self._node(addresses[0])
            slots[first : last + 1] = [server] * (last + 1 - first)
            if server not in primaries:
                primaries.append(server)
        changed = slots != self._slots
        self._slots, self._primaries = slots, primaries
        for place in [place for place, server in self._nodes.items() if server not in primaries]:
            self.start(self._retire(self._nodes.pop(place)), Context())
        if changed:
            # Whoever tracked a key for us may not be the one who sees it change from now on.
            self._listeners.tell(None)

    async def _retire(self, server: StandaloneValkey) -> None:
        """Let a node go that holds no slots any more, once what it was asked has had its time."""
        try:
            await asyncio.sleep(self.options.timeout)
        finally:
            await server.close()
