"""The types of calls to Valkey: options, errors, pending calls and statistics.

Errors say what the caller needs to decide: `may_have_run` is False only if no byte of the command was written, so
repeating it is safe. Errors that mean "Valkey is unavailable" are `Unavailable`: a request fails with 503.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from plaza.core.errors import Unavailable

if TYPE_CHECKING:
    from plaza.core.tracing import Trace
    from plaza.core.valkey.connection_fencing import FencedConnection

Arg = str | bytes | int | float


class ReplyError(Exception):
    """An error reply. `code` is its first word, such as `WRONGTYPE`; `sent` is the packed command."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.sent = b""  # not part of the message, because it can contain secrets


class ValkeyUnavailable(Unavailable):
    """Valkey is unavailable. Its text has the address and the reason, for logs; HTTP clients get only `detail`."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.detail = "Valkey is unavailable or busy."


class ConnectionLost(ValkeyUnavailable):
    """The connection broke, or could not be made. `fenced` is the broken connection: its commands may still run."""

    def __init__(self, text: str, *, may_have_run: bool, fenced: FencedConnection | None = None) -> None:
        super().__init__(text)
        self.may_have_run = may_have_run
        self.fenced = fenced


class CallTimeout(ValkeyUnavailable):
    """No reply arrived in time. The command may still run, or have run."""

    def __init__(self, text: str, *, may_have_run: bool) -> None:
        super().__init__(text)
        self.may_have_run = may_have_run


class Overloaded(ValkeyUnavailable):
    """Too many calls are in flight, and this one waited too long. The command did not run."""

    may_have_run = False


class NotReady(ValkeyUnavailable):
    """Valkey is reachable and cannot serve now: it loads its data, elects a primary or is out of memory.

    `reply` is the first word of the error reply, `message` all of it. The command did not run.
    """

    may_have_run = False

    def __init__(self, reply: str, message: str) -> None:
        super().__init__(f"Valkey cannot serve now: {message.rstrip('.')}.")
        self.reply = reply
        self.message = message


_NOT_READY = frozenset(
    ("LOADING", "BUSY", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "NOREPLICAS", "MISCONF", "OOM", "READONLY")
)


class ConnectionStats:
    """Counters of all connections of this process. `core/metrics.py` reads them regularly."""

    __slots__ = ("failures", "reconnects", "sockets", "trips")

    def __init__(self) -> None:
        self.trips = 0
        self.failures = 0  # calls without a reply, or with a `NotReady` one
        self.reconnects = 0
        self.sockets: set[Any] = set()  # open connections; each has its `pending` calls


CONNECTION_STATS = ConnectionStats()


def error_reply(message: str | bytes) -> Exception:
    """Return the exception for an error reply; invalid UTF-8 is replaced."""
    text = message if isinstance(message, str) else message.decode(errors="replace")
    code = text.split(" ", 1)[0]
    if code not in _NOT_READY:
        return ReplyError(code, text)
    CONNECTION_STATS.failures += 1
    return NotReady(code, text)


class ConnectionOptions(Struct, frozen=True):
    """Timeouts (in seconds) and limits of a connection."""

    timeout: float = 5.0  # of a call without a timeout of its own
    queue_timeout: float = 1.0  # how long a call waits to be written: for the connection, or for other calls
    connect_timeout: float = 2.0  # of one attempt: TCP, TLS, AUTH
    max_in_flight: int = 4096  # calls written and not answered
    max_queued: int = 65_536  # calls not written yet
    backoff: float = 0.05  # between attempts to connect, doubled each time
    max_backoff: float = 2.0

    def until(self, timeout: float | None) -> float:
        """Return when a call with this timeout expires, in monotonic seconds."""
        return monotonic() + (self.timeout if timeout is None else timeout)


class RequestUsage(Struct):
    """The round trips of one request, and the sum of the seconds it waited for them.

    A request that `only_reads` takes a key of the wrong type as absent; `damaged` is the error of the first one.
    """

    trips: int = 0
    seconds: float = 0.0
    only_reads: bool = False
    damaged: ReplyError | None = None
    trace: Trace | None = None  # if the request or job is sampled


REQUEST_USAGE: ContextVar[RequestUsage | None] = ContextVar("usage", default=None)


@contextmanager
def damaged_keys_as_absent() -> Iterator[None]:
    """Take keys of the wrong type as absent, as a request that only reads does. For reads of a job, without a yield."""
    outer = REQUEST_USAGE.get()
    usage = RequestUsage(only_reads=True, trace=outer.trace if outer is not None else None)
    token = REQUEST_USAGE.set(usage)
    try:
        yield
    finally:
        REQUEST_USAGE.reset(token)
        if outer is not None:
            outer.trips += usage.trips
            outer.seconds += usage.seconds


class ReplyGroup:
    """The replies of several commands that make one result. `finish` computes it, in reply order."""

    __slots__ = ("count", "finish", "replies")

    def __init__(self, count: int, finish: Callable[[list[Any]], Any]) -> None:
        self.count = count
        self.finish = finish
        self.replies: list[Any] = []


# A call: packed command, future, group if it has several replies, the request's usage, when queued, when it expires.
# A tuple, because every command creates one and a tuple is the cheapest object.
PendingCall = tuple[bytes, "Future[Any]", "ReplyGroup | None", "RequestUsage | None", float, float]


def fail(call: PendingCall, error: Exception, now: float) -> None:
    """Fail a call without a reply, unless it has ended."""
    _, future, _, usage, since, _ = call
    if not future.done():
        CONNECTION_STATS.failures += 1
        if usage is not None:
            usage.seconds += now - since
            if usage.trace is not None:
                usage.trace.add_valkey_call(call, now, error)
        future.set_exception(error)


def with_command(packed: bytes, error: Exception) -> Exception:
    """Store the packed command in an error reply, and return the error."""
    if isinstance(error, ReplyError):
        error.sent = packed
    return error


def command_words(packed: bytes, max_words: int) -> list[str]:
    """Return the first words of packed commands."""
    words: list[str] = []
    at = 0
    while at < len(packed) and len(words) < max_words:
        end = packed.index(b"\r\n", at)
        start = end + 2
        if packed[at : at + 1] == b"$":
            size = int(packed[at + 1 : end])
            words.append(packed[start : start + size].decode(errors="replace"))
            start += size + 2
        at = start
    return words


def all_or_first_error(replies: list[Any]) -> list[Any]:
    """Return the replies of a batch, or raise the first error."""
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies


def exec_replies(replies: list[Any]) -> list[Any]:
    """Return the replies of MULTI … EXEC. If EXEC failed, raise the error of the command that could not be queued."""
    if isinstance(replies[-1], Exception):
        all_or_first_error(replies)
    results: list[Any] = replies[-1]
    return results


def exec_replies_or_error(replies: list[Any]) -> list[Any]:
    """The same, but raise the first error of a command."""
    return all_or_first_error(exec_replies(replies))
