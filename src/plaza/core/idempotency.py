"""`Idempotency-Key`: a request that is sent again is not done again.

A caller's key is claimed before the work starts, by one `SET … NX GET`, so of any number of equal requests exactly one
runs. The claim is a lease that is renewed while the work goes on: if the process dies, the key is free again after
`LEASE_MS`. Whether the work had been done by then only the facts can tell, so the second run gets the same
`operation` id, by which a verb recognises what it has already done. That id is made of the key, the request, and a
token that lasts as long as answers do: whoever uses a key again days later, or for something else after a failure,
asks for a new thing, and must not be told of an old one.

The answer replaces the claim (`SET … IFEQ`, so a run that lost its lease overwrites nobody's) and stays for a day.
Of the request only a hash is kept; of the answer what the caller got, without cookies.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar, Final

import msgspec

from plaza.core.auth import Actor
from plaza.core.errors import Conflict, Invalid, Unavailable
from plaza.core.keys import IDEMPOTENCY, IDEMPOTENCY_DAY
from plaza.core.valkey import Valkey

KEPT_MS: Final = 24 * 3_600_000

# Long enough for a stalled loop and three tries to renew; short enough for a client that retries with patience.
LEASE_MS: Final = 10_000

REPLAYED: Final = ("idempotency-replayed", "true")

# What describes the body, or what was made. Others belong to one exchange (request id) or are secret (cookies).
_KEPT_HEADERS: Final = frozenset({"content-type", "content-language", "etag", "link", "location"})

# Refused before anything was done: the same request may well succeed later.
_NOTHING_DONE: Final = frozenset({400, 401, 413, 415, 422, 429})

_VISIBLE = re.compile(r"[!-~]{1,255}")

Headers = tuple[tuple[str, str], ...]


class KeyReused(Invalid):
    title, code = "This Idempotency-Key was used for another request", "idempotency_key_reused"


class StillRunning(Conflict):
    title, code = "The first request with this Idempotency-Key is still running", "idempotency_running"
    retry_after: ClassVar[float] = 1.0


class RunningRequest(msgspec.Struct, frozen=True, tag="running"):
    """A claim: which request, and which run of it."""

    request: str
    run: str


class StoredResponse(msgspec.Struct, frozen=True, tag="kept"):
    """An answer as it is kept."""

    request: str
    status: int
    headers: Headers
    body: bytes


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(RunningRequest | StoredResponse).decode


@dataclass(frozen=True, slots=True)
class BufferedResponse:
    """An answer as bytes: what `work` gives, and what its caller gets, now or again."""

    status: int
    headers: Headers
    body: bytes
    replayed: bool = False


# Makes the answer, errors included. It gets an id that is the same in every run of the same request within a day.
Handle = Callable[[str], Awaitable[BufferedResponse]]


@dataclass(frozen=True, slots=True)
class IdempotentRequest:
    """A request with an `Idempotency-Key`: a hash of whose it is and of the key, and one of what it asks."""

    key: str
    request: str

    @classmethod
    def from_request(cls, caller: str, key: str, method: str, target: str, body: bytes) -> IdempotentRequest:
        """`target` is the path with its query. `caller` is what `caller_id` says."""
        if _VISIBLE.fullmatch(key) is None:
            raise Invalid("must be 1 to 255 visible ASCII characters", field="Idempotency-Key")
        whose = hashlib.sha256(f"{caller}\n{key}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
        request = hashlib.sha256(f"{method} {target}\n".encode("utf-8", "surrogatepass") + body).hexdigest()
        return cls(whose, request)

    def operation(self, day: str) -> str:
        """What a run of this request is known by."""
        return hashlib.sha256(f"{self.key} {self.request} {day}".encode()).hexdigest()[:32]


def caller_id(actor: Actor | None, address: str) -> str:
    """Keys of different callers never meet: people by name, servers by the API key, others by address."""
    return f"address {address}" if actor is None else f"actor {actor.name}"


class Idempotency:
    """Runs work once per key. Not for answers that hold secrets: those of the auth routes are never kept, and
    registering sees to it itself."""

    def __init__(self, valkey: Valkey, *, lease_ms: int = LEASE_MS) -> None:
        self._valkey = valkey
        self._lease_ms = lease_ms

    async def once(self, keyed: IdempotentRequest, work: Handle) -> BufferedResponse:
        """The answer of `work`, or the kept one of an earlier run. Two round trips if it runs, one if not."""
        name, run = IDEMPOTENCY(keyed.key), secrets.token_hex(8)
        claim = _encode(RunningRequest(keyed.request, run)).decode()
        found, day = await self._valkey.batch(
            [
                ("SET", name, claim, "NX", "GET", "PX", self._lease_ms),
                ("SET", IDEMPOTENCY_DAY(keyed.key), run, "NX", "GET", "PX", KEPT_MS),
            ]
        )
        if found is not None:
            return _replay(keyed, _decode(found))
        try:
            async with self._renewed(name, claim):
                reply = await work(keyed.operation(day or run))
        except BaseException:  # also a cancelled request's: whoever comes next may try
            await self._release(name, claim)
            raise
        if reply.status >= 500 or reply.status in _NOTHING_DONE:
            await self._release(name, claim)
        else:
            await self._keep(name, claim, keyed, reply)
        return reply

    async def _keep(self, name: str, claim: str, keyed: IdempotentRequest, reply: BufferedResponse) -> None:
        kept = StoredResponse(keyed.request, reply.status, kept_headers(reply.headers), reply.body)
        # If Valkey is away now, the work is done all the same, and its caller should hear so.
        with contextlib.suppress(Unavailable):
            await self._valkey.call("SET", name, _encode(kept), "IFEQ", claim, "PX", KEPT_MS)

    async def _release(self, name: str, claim: str) -> None:
        with contextlib.suppress(Unavailable):  # then the lease runs out
            await self._valkey.call("DELIFEQ", name, claim)

    @contextlib.asynccontextmanager
    async def _renewed(self, name: str, claim: str) -> AsyncIterator[None]:
        """Hold the claim while the body runs. Costs a timer; a task only for work that takes long."""
        period = self._lease_ms / 3000
        tasks: list[asyncio.Task[None]] = []

        async def renew() -> None:
            while True:
                with contextlib.suppress(Unavailable):  # the next try may reach it
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


def kept_headers(headers: Iterable[tuple[str, str]]) -> Headers:
    """The headers that are given again with a kept answer."""
    return tuple((name.lower(), value) for name, value in headers if name.lower() in _KEPT_HEADERS)


def _replay(keyed: IdempotentRequest, found: RunningRequest | StoredResponse) -> BufferedResponse:
    if found.request != keyed.request:
        raise KeyReused("Use a new key for a new request.", field="Idempotency-Key")
    if isinstance(found, RunningRequest):
        raise StillRunning("Wait for its answer, or ask again shortly.")
    return BufferedResponse(found.status, (*found.headers, REPLAYED), found.body, replayed=True)
