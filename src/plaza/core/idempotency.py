"""`Idempotency-Key`: a request that is sent twice runs once.

The key is claimed before the handler starts, by one `SET … NX GET`, so exactly one of any number of equal requests
runs. The claim is a lease, renewed while the handler runs: if the process dies, the key is free again after `LEASE_MS`.
Only the source data shows whether the work was done by then, so the second run gets the same `operation` id, by which a
command recognises what it has already done. The id is a hash of the key, the request, and the day of the first run,
which is stored as long as responses are: the same key used a day later, or for something else after a failure, is a new
operation. A failover can lose claim, response and day. A repeated request then runs again, and has the same id until
midnight (UTC). For rows in SQL there is `row_operation`, without the day (`sql_idempotency.py`).

The response replaces the claim (`SET … IFEQ`, so a run that lost its lease overwrites no other) and is stored for a
day. Of the request only a hash is stored; of the response all but its cookies.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import ClassVar, Final

import msgspec
from msgspec import Struct

from plaza.core.auth import Actor
from plaza.core.clock import Clock
from plaza.core.errors import Conflict, Invalid, Unavailable
from plaza.core.keys import IDEMPOTENCY, IDEMPOTENCY_DAY
from plaza.core.valkey import Valkey

DAY_MS: Final = 24 * 3_600_000
STORED_MS: Final = DAY_MS

# Long enough for a stalled loop and three tries to renew; short enough for a client that retries.
LEASE_MS: Final = 10_000

REPLAYED: Final = ("idempotency-replayed", "true")

# Headers of the body or the created object. Others belong to one exchange (request id) or are secret (cookies).
_STORED_HEADERS: Final = frozenset({"content-type", "content-language", "etag", "link", "location"})

# Errors before anything was done: the same request can succeed later.
_NOTHING_DONE: Final = frozenset({400, 401, 413, 415, 422, 429})

_VISIBLE = re.compile(r"[!-~]{1,255}")

Headers = tuple[tuple[str, str], ...]


class KeyReused(Invalid):
    title, code = "This Idempotency-Key was used for another request", "idempotency_key_reused"


class StillRunning(Conflict):
    title, code = "The first request with this Idempotency-Key is still running", "idempotency_running"
    retry_after: ClassVar[float] = 1.0


class RunningRequest(msgspec.Struct, frozen=True, tag="running"):
    """A claim: the hash of the request, and the id of its run."""

    request: str
    run: str


class StoredResponse(msgspec.Struct, frozen=True, tag="kept"):
    """A response in Valkey."""

    request: str
    status: int
    headers: Headers
    body: bytes


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(RunningRequest | StoredResponse).decode


class BufferedResponse(Struct, frozen=True):
    """A response as bytes. `replayed` says that it is the stored one of an earlier run."""

    status: int
    headers: Headers
    body: bytes
    replayed: bool = False


# Makes the response, also for errors. Its argument is the operation id, equal in every run of a request within a day.
Handle = Callable[[str], Awaitable[BufferedResponse]]


def require_valid_key(key: str) -> None:
    """Raise `Invalid` unless a text can be an `Idempotency-Key`."""
    if _VISIBLE.fullmatch(key) is None:
        raise Invalid("must be 1 to 255 visible ASCII characters", field="Idempotency-Key")


class IdempotentRequest(Struct, frozen=True):
    """A request with an `Idempotency-Key`: a hash of caller and key, and a hash of the request."""

    key: str
    request_hash: str

    @classmethod
    def from_request(cls, caller: str, key: str, method: str, target: str, body: bytes) -> IdempotentRequest:
        """Hash a request. `target` is the path with its query, `caller` the result of `caller_id`."""
        require_valid_key(key)
        caller_and_key = hashlib.sha256(f"{caller}\n{key}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
        # The key is part of it, because a hash of the body alone could be guessed from a copy of the database.
        request = f"{key}\n{method} {target}\n".encode("utf-8", "surrogatepass") + body
        request_hash = hashlib.sha256(request).hexdigest()
        return cls(caller_and_key, request_hash)

    def operation(self, day: str) -> str:
        """Return the operation id."""
        return hashlib.sha256(f"{self.key} {self.request_hash} {day}".encode()).hexdigest()[:32]

    @property
    def row_operation(self) -> str:
        """Return the operation id of rows in SQL, which have the time of the first run themselves."""
        return self.operation("")


def caller_id(actor: Actor | None, address: str) -> str:
    """Return a text that identifies the caller: a username, the API key, or an address."""
    return f"address {address}" if actor is None else f"actor {actor.name}"


class Idempotency:
    """Runs a handler once per key. Not for responses with secrets: those of the auth routes are never stored."""

    def __init__(self, valkey: Valkey, clock: Clock | None = None, *, lease_ms: int = LEASE_MS) -> None:
        self._valkey = valkey
        self._clock = clock or Clock()
        self._lease_ms = lease_ms

    async def run_once(self, request: IdempotentRequest, handle: Handle) -> BufferedResponse:
        """Return the response of `handle`, or the stored one of an earlier run. Two round trips, or one."""
        name, run = IDEMPOTENCY(request.key), secrets.token_hex(8)
        today = str(self._clock.now_ms() // DAY_MS)
        claim = _encode(RunningRequest(request.request_hash, run)).decode()
        found, day = await self._valkey.batch(
            [
                ("SET", name, claim, "NX", "GET", "PX", self._lease_ms),
                ("SET", IDEMPOTENCY_DAY(request.key), today, "NX", "GET", "PX", STORED_MS),
            ]
        )
        if found is not None:
            return _replay(request, _decode(found))
        try:
            async with self._renewed(name, claim):
                reply = await handle(request.operation(day or today))
        except BaseException:  # also a cancelled request: the next one may try
            await self._release(name, claim)
            raise
        if reply.status >= 500 or reply.status in _NOTHING_DONE:
            await self._release(name, claim)
        else:
            await self._store(name, claim, request, reply)
        return reply

    async def _store(self, name: str, claim: str, request: IdempotentRequest, reply: BufferedResponse) -> None:
        stored = StoredResponse(request.request_hash, reply.status, stored_headers(reply.headers), reply.body)
        # If Valkey is unavailable now, the work is done all the same, and the caller gets the response.
        with contextlib.suppress(Unavailable):
            await self._valkey.call("SET", name, _encode(stored), "IFEQ", claim, "PX", STORED_MS)

    async def _release(self, name: str, claim: str) -> None:
        with contextlib.suppress(Unavailable):  # then the lease expires
            await self._valkey.call("DELIFEQ", name, claim)

    @contextlib.asynccontextmanager
    async def _renewed(self, name: str, claim: str) -> AsyncIterator[None]:
        """Renew the claim while the block runs. Costs a timer, and a task only if the block takes long."""
        period = self._lease_ms / 3000
        tasks: list[asyncio.Task[None]] = []

        async def renew() -> None:
            while True:
                with contextlib.suppress(Unavailable):  # the next try may succeed
                    await self._valkey.call("SET", name, claim, "IFEQ", claim, "PX", self._lease_ms)
                await asyncio.sleep(period)

        loop = asyncio.get_running_loop()
        timer = loop.call_later(period, lambda: tasks.append(loop.create_task(renew())))
        try:
            yield
        finally:
            timer.cancel()
            for task in tasks:
                task.cancel()


def stored_headers(headers: Iterable[tuple[str, str]]) -> Headers:
    """Return the headers that are stored with a response."""
    return tuple((name.lower(), value) for name, value in headers if name.lower() in _STORED_HEADERS)


def _replay(request: IdempotentRequest, found: RunningRequest | StoredResponse) -> BufferedResponse:
    if found.request != request.request_hash:
        raise KeyReused("Use a new key for a different request.", field="Idempotency-Key")
    if isinstance(found, RunningRequest):
        raise StillRunning("Wait for its response, or retry shortly.")
    return BufferedResponse(found.status, (*found.headers, REPLAYED), found.body, replayed=True)
