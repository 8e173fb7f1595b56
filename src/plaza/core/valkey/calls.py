"""What a call to Valkey is made of, and what can become of it.

Errors say what the caller needs to decide: `may_have_run` is False only when not one byte of the command was handed
to the connection, so repeating it is safe whatever it does. Those that mean "Valkey is away" are `Unavailable`, so a
service that does not catch them answers 503.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plaza.core.errors import Unavailable

if TYPE_CHECKING:
    from plaza.core.valkey.connection_fencing import FencedConnection

Arg = str | bytes | int | float


class ReplyError(Exception):
    """Valkey answered with an error. `code` is its first word, such as `WRONGTYPE`; `sent` is what it answers."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.sent = b""  # not part of the message: it may hold what is secret


class ValkeyUnavailable(Unavailable):
    """Valkey is away. The error's own text says where and why, for logs and operators; clients get only `detail`."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.detail = "Valkey is away or busy."


class ConnectionLost(ValkeyUnavailable):
    """The connection broke, or could not be made. `fenced` is the one that broke: what it carried may still run."""

    def __init__(self, text: str, *, may_have_run: bool, fenced: FencedConnection | None = None) -> None:
        super().__init__(text)
        self.may_have_run = may_have_run
        self.fenced = fenced


class CallTimeout(ValkeyUnavailable):
    """No reply came in time. The command may still run, or have run."""

    def __init__(self, text: str, *, may_have_run: bool) -> None:
        super().__init__(text)
        self.may_have_run = may_have_run


class Overloaded(ValkeyUnavailable):
    """As many calls as allowed are in flight, and the wait for a turn was in vain. The command did not run."""

    may_have_run = False


class NotReady(ValkeyUnavailable):
    """Valkey is there and cannot serve now: it loads its data, elects a primary, has no memory left.

    `reply` is the first word of its error, and `message` all of it. The command did not run.
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
    """What this process's connections have done so far, in plain numbers: `core/metrics.py` looks now and then."""

    __slots__ = ("failures", "links", "reconnects", "trips")

    def __init__(self) -> None:
        self.trips = 0
        self.failures = 0  # calls without an answer, or answered "not now"
        self.reconnects = 0
        self.links: set[Any] = set()  # open connections; each has its `pending` calls


CONNECTION_STATS = ConnectionStats()


def error_reply(message: str | bytes) -> Exception:
    """The exception an error reply becomes; bytes strangers wrote cannot break it."""
    text = message if isinstance(message, str) else message.decode(errors="replace")
    code = text.split(" ", 1)[0]
    if code not in _NOT_READY:
        return ReplyError(code, text)
    CONNECTION_STATS.failures += 1
    return NotReady(code, text)


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """How long and how much. Times are in seconds."""

    timeout: float = 5.0  # a call without a timeout of its own
    patience: float = 1.0  # to wait for a connection, or for a turn, before a call fails
    connect_timeout: float = 2.0  # one attempt: TCP, TLS, AUTH
    in_flight: int = 4096  # calls written and not answered
    waiting: int = 65_536  # calls not written yet, when there is no turn for them
    backoff: float = 0.05  # between attempts to connect, doubling each time,
    backoff_most: float = 2.0  # up to this


@dataclass(slots=True)
class RequestUsage:
    """What one request has asked of Valkey: round trips, and seconds spent waiting for them (summed)."""

    trips: int = 0
    seconds: float = 0.0


REQUEST_USAGE: ContextVar[RequestUsage | None] = ContextVar("usage", default=None)


class ReplyGroup:
    """Several replies that make one answer. `finish` turns them into it, in the order of the connection."""

    __slots__ = ("count", "finish", "replies")

    def __init__(self, count: int, finish: Callable[[list[Any]], Any]) -> None:
        self.count = count
        self.finish = finish
        self.replies: list[Any] = []


# What waits for a reply: packed command, who waits, how many replies, whose usage, since when, until when.
# A tuple, because one is made for every command and nothing is cheaper to make.
PendingCall = tuple[bytes, "Future[Any]", "ReplyGroup | None", "RequestUsage | None", float, float]


def fail(entry: PendingCall, error: Exception, now: float) -> None:
    """End a call without a reply, unless it has ended already."""
    _, future, _, usage, since, _ = entry
    if not future.done():
        CONNECTION_STATS.failures += 1
        if usage is not None:
            usage.seconds += now - since
        future.set_exception(error)


def with_command(packed: bytes, error: Exception) -> Exception:
    """An error that knows what it answers, if Valkey said it."""
    if isinstance(error, ReplyError):
        error.sent = packed
    return error


def command_words(packed: bytes, most: int) -> list[str]:
    """The words of packed commands, as far as there are no more than that."""
    words: list[str] = []
    at = 0
    while at < len(packed) and len(words) < most:
        end = packed.index(b"\r\n", at)
        start = end + 2
        if packed[at : at + 1] == b"$":
            size = int(packed[at + 1 : end])
            words.append(packed[start : start + size].decode(errors="replace"))
            start += size + 2
        at = start
    return words


def all_or_first_error(replies: list[Any]) -> list[Any]:
    """The answers of a batch; if one is an error, that error instead."""
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies


def exec_replies(replies: list[Any]) -> list[Any]:
    """The answers of MULTI … EXEC. What made EXEC refuse is the error of the command that could not be queued."""
    if isinstance(replies[-1], Exception):
        all_or_first_error(replies)
    answers: list[Any] = replies[-1]
    return answers


def exec_replies_or_error(replies: list[Any]) -> list[Any]:
    """The same, if none of the commands ran into an error."""
    return all_or_first_error(exec_replies(replies))
