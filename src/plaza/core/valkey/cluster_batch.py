"""A batch whose commands live on several nodes, and is one batch to its caller."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from plaza.core.valkey.calls import all_or_first_error, with_command
from plaza.core.valkey.connection import Connection
from plaza.core.valkey.redirects import is_redirect, resend, single_reply

if TYPE_CHECKING:
    from plaza.core.valkey.cluster import ClusterValkey


class ClusterBatch:
    """Puts the parts of a batch together in order, and sends again what was redirected.

    Callbacks and not a task, which would cost as much as all the rest of a small batch.
    """

    def __init__(
        self, cluster: ClusterValkey, packed: list[bytes], parts: int, until: float, return_errors: bool
    ) -> None:
        self.answer: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._cluster = cluster
        self._packed = packed
        self._several = parts > 1
        self._left = parts
        self._until = until
        self._return_errors = return_errors
        self._replies: list[Any] = [None] * len(packed)
        self._moved: list[tuple[int, Connection]] = []
        self._failure: BaseException | None = None

    def add(self, where: list[int], connection: Connection, part: asyncio.Future[list[Any]]) -> None:
        part.add_done_callback(partial(self._arrived, where, connection))

    def _arrived(self, where: list[int], connection: Connection, part: asyncio.Future[list[Any]]) -> None:
        self._left -= 1
        failure = part.exception()
        if failure is not None:
            self._failure = failure
        else:
            for i, reply in zip(where, part.result(), strict=True):
                self._replies[i] = reply
                if isinstance(reply, Exception) and is_redirect(reply):
                    self._moved.append((i, connection))
        if self._left == 0 and not self.answer.done():
            self._finish()

    def _finish(self) -> None:
        if self._failure is not None:
            if self._several:
                self._failure.may_have_run = True  # type: ignore[attr-defined]  # if not this part, then another
            self.answer.set_exception(self._failure)
        elif self._moved:
            task = self._cluster.start(self._follow())
            self.answer.add_done_callback(lambda _: task.cancel())
        else:
            self._settle()

    async def _follow(self) -> None:
        work = []
        for i, connection in self._moved:
            again = resend(self._packed[i], 1, single_reply, self._until)
            work.append(self._cluster.retry(connection, self._replies[i], self._until, again))
        try:
            answers = await asyncio.gather(*work, return_exceptions=True)
        except asyncio.CancelledError:
            if not self.answer.done():  # then it is not the caller who gave up
                self.answer.set_exception(self._cluster.closed())
            raise
        for (i, _), answer in zip(self._moved, answers, strict=True):
            self._replies[i] = answer
        self._settle()

    def _settle(self) -> None:
        if self.answer.done():
            return
        try:
            self.answer.set_result(self._replies if self._return_errors else all_or_first_error(self._replies))
        except Exception as error:
            self.answer.set_exception(with_command(b"".join(self._packed), error))
