"""`ClusterBatch`: one batch whose commands go to several nodes."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from plaza.core.valkey.absent_replies import reads_as_absent, with_absent_replies
from plaza.core.valkey.calls import REQUEST_USAGE, ReplyError, all_or_first_error, with_command
from plaza.core.valkey.connection import Connection
from plaza.core.valkey.redirect_errors import is_redirect, resend, single_reply

if TYPE_CHECKING:
    from plaza.core.valkey.cluster import ClusterValkey


class ClusterBatch:
    """Combines the replies of the nodes in order, and follows redirections.

    It uses callbacks, not a task: a task would cost as much as the rest of a small batch.
    """

    def __init__(
        self, cluster: ClusterValkey, packed: list[bytes], parts: int, until: float, return_errors: bool
    ) -> None:
        self.result: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._cluster = cluster
        self._packed = packed
        self._several = parts > 1
        self._left = parts
        self._until = until
        self._return_errors = return_errors
        self._replies: list[Any] = [None] * len(packed)
        self._moved: list[tuple[int, Connection]] = []
        self._failure: BaseException | None = None
        self._usage = REQUEST_USAGE.get()

    def add(self, indexes: list[int], connection: Connection, part: asyncio.Future[list[Any]]) -> None:
        part.add_done_callback(partial(self._arrived, indexes, connection))

    def _arrived(self, indexes: list[int], connection: Connection, part: asyncio.Future[list[Any]]) -> None:
        self._left -= 1
        failure = part.exception()
        if failure is not None:
            self._failure = failure
        else:
            for i, reply in zip(indexes, part.result(), strict=True):
                self._replies[i] = reply
                if isinstance(reply, Exception) and is_redirect(reply):
                    self._moved.append((i, connection))
        if self._left == 0 and not self.result.done():
            self._finish()

    def _finish(self) -> None:
        if self._failure is not None:
            if self._several:
                self._failure.may_have_run = True  # type: ignore[attr-defined]  # another part may have run
            self.result.set_exception(self._failure)
        elif self._moved:
            task = self._cluster.start(self._follow())
            self.result.add_done_callback(lambda _: task.cancel())
        else:
            self._resolve()

    async def _follow(self) -> None:
        retries = []
        for i, connection in self._moved:
            again = resend(self._packed[i], 1, single_reply, self._until)
            retries.append(self._cluster.redirects.retry(connection, self._replies[i], self._until, again))
        try:
            replies = await asyncio.gather(*retries, return_exceptions=True)
        except asyncio.CancelledError:
            if not self.result.done():  # the cluster was closed, not the caller cancelled
                self.result.set_exception(self._cluster.closed())
            raise
        for (i, _), reply in zip(self._moved, replies, strict=True):
            self._replies[i] = reply
        self._resolve()

    def _resolve(self) -> None:
        if self.result.done():
            return
        try:
            self.result.set_result(self._replies if self._return_errors else self._all_replies())
        except Exception as error:
            self.result.set_exception(with_command(b"".join(self._packed), error))

    def _all_replies(self) -> list[Any]:
        """Return all replies, or raise the first error."""
        try:
            return all_or_first_error(self._replies)
        except ReplyError as error:
            packed = b"".join(self._packed)
            if not reads_as_absent(with_command(packed, error), self._usage):
                raise
            return all_or_first_error(with_absent_replies(packed, self._replies, resp=3))
