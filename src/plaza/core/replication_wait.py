"""`PLAZA_WAIT_REPLICAS`: a write is acknowledged when enough replicas of Valkey have it.

`WAIT` blocks its connection until replicas have the last write *of that connection*. So each primary has a connection
of its own for it, which first writes a small key. That write is later than those of the requests that wait: a replica
that has it has all of them. Requests that wait at the same time share one `WAIT`.
"""

from __future__ import annotations

import asyncio
from typing import Final

from plaza.core.errors import Unavailable
from plaza.core.keys import REPLICATED
from plaza.core.outbox import slot_tags
from plaza.core.valkey import Valkey
from plaza.core.valkey.client import BlockingConnection

# Much longer than a network round trip, shorter than a client's patience.
WAIT_MS: Final = 1_000

_DETAIL = "The write is done, but too few replicas confirmed it in time. Repeat it with the same Idempotency-Key."


class NotReplicated(Unavailable):
    title, code = "The write is not on enough replicas", "not_replicated"


class ReplicationWait:
    """Waits until replicas have what was written."""

    def __init__(self, valkey: Valkey, replicas: int, *, wait_ms: int = WAIT_MS) -> None:
        self._valkey = valkey
        self._replicas = replicas
        self._wait_ms = wait_ms
        self._primaries: dict[Valkey, _PrimaryWait] = {}

    async def confirm(self) -> None:
        """Return when replicas of every primary have all that this process has written so far. Two round trips.

        Raises `NotReplicated` if too few of them confirm it in time.
        """
        primaries = self._valkey.primaries()
        for gone in [node for node in self._primaries if node not in primaries]:
            self._primaries.pop(gone).stop()
        await asyncio.gather(*(self._primary(node).confirm() for node in primaries))

    def close(self) -> None:
        """Stop. Those that wait are cancelled."""
        for primary in self._primaries.values():
            primary.stop()

    def _primary(self, node: Valkey) -> _PrimaryWait:
        if node not in self._primaries:
            self._primaries[node] = _PrimaryWait(self._valkey, node, self._replicas, self._wait_ms)
        return self._primaries[node]


class _PrimaryWait:
    """Runs `WAIT` on one primary for all requests that wait."""

    def __init__(self, valkey: Valkey, node: Valkey, replicas: int, wait_ms: int) -> None:
        self._valkey = valkey
        self._node = node
        self._replicas = replicas
        self._wait_ms = wait_ms
        self._waiting: list[asyncio.Future[None]] = []
        self._arrived = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    def confirm(self) -> asyncio.Future[None]:
        """Return a future that is done when replicas have all that was written before this call."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._arrived.set()
        return future

    def stop(self) -> None:
        self._task.cancel()
        for future in self._waiting:
            future.cancel()

    async def _run(self) -> None:
        async with self._node.blocking() as connection:
            while True:
                await self._arrived.wait()
                self._arrived.clear()
                served, self._waiting = self._waiting, []
                error = await self._wait(connection)
                for future in served:
                    if future.done():  # its request was cancelled
                        continue
                    if error is None:
                        future.set_result(None)
                    else:
                        future.set_exception(error)

    async def _wait(self, connection: BlockingConnection) -> Exception | None:
        """Wait once. Returns the error of those that wait, or None."""
        try:
            key = REPLICATED(slot_tags()[next(iter(self._valkey.slots_on(self._node)), 0)])
            await connection.call("SET", key, "", "PX", self._wait_ms)
            confirmed = int(await connection.call("WAIT", self._replicas, self._wait_ms))
        except Exception as error:  # for those that wait; the next try may succeed
            return error if isinstance(error, Unavailable) else NotReplicated(_DETAIL)
        return None if confirmed >= self._replicas else NotReplicated(_DETAIL)
