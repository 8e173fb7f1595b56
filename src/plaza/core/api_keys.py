"""Named API keys for other services: scoped, expiring, revocable. Only their SHA-256 is stored.

There are few keys and every request may bring one, so each process holds all of them in memory and a check needs no
I/O. Valkey reports a change (a tracked read), and the process reads the keys again. The last use of a key is stored to
the hour, by the same task, so that a request does not wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
from collections.abc import Callable
from typing import Final, Literal, get_args

import msgspec
import structlog

from plaza.core.clock import Clock
from plaza.core.errors import Conflict, Invalid, NotFound, Unavailable
from plaza.core.keys import API_KEY_USES, API_KEYS
from plaza.core.number_parsing import parse_int
from plaza.core.valkey import ReplyError, Valkey

Scope = Literal["sync", "events", "read", "admin"]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)

PREFIX: Final = "plaza_"
MAX_KEYS: Final = 1_000
RETRY_SECONDS: Final = 0.5
HOUR_MS: Final = 3_600_000

log = structlog.get_logger("plaza.auth")


class ApiKey(msgspec.Struct, frozen=True, omit_defaults=True):
    """A key without its secret. Times are Unix milliseconds; the last use is exact to the hour."""

    name: str
    scopes: tuple[Scope, ...]
    created_at: int
    expires_at: int | None = None
    last_used_at: int | None = None


class KeyNameTaken(Conflict):
    title, code = "An API key of this name exists", "api_key_exists"


class ApiKeys:
    """Creates, lists, revokes and recognizes API keys."""

    def __init__(self, valkey: Valkey, clock: Clock) -> None:
        self._valkey = valkey
        self._clock = clock
        self._by_digest: dict[str, ApiKey] = {}
        self._used: dict[str, int] = {}  # by digest: the last hour in which this process saw the key
        self._unsaved: set[str] = set()
        self._wake = asyncio.Event()
        self._is_stale = False
        self._following: asyncio.Task[None] | None = None
        self._unlisten: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Read all keys, and follow their changes until `close`."""
        self._unlisten = self._valkey.on_invalidate(self._on_invalidate)
        try:
            await self._read()
        except BaseException:
            self._unlisten()
            raise
        self._following = asyncio.create_task(self._follow())

    async def close(self) -> None:
        self._unlisten()
        if self._following is not None:
            self._following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._following

    def find(self, text: str) -> ApiKey | None:
        """Return the valid key with this secret. No I/O. Lookup by hash leaks nothing about other keys."""
        if not text.startswith(PREFIX):
            return None
        digest, now = _digest(text), self._clock.now_ms()
        key = self._by_digest.get(digest)
        if key is None or (key.expires_at is not None and key.expires_at <= now):
            return None
        hour = now - now % HOUR_MS
        if self._used.get(digest) != hour:
            self._used[digest] = hour
            self._unsaved.add(digest)
            self._wake.set()
        return key

    async def create(self, name: str, scopes: tuple[Scope, ...], lifetime_days: int | None = None) -> str:
        """Create a key and return its secret, which is shown this once. Two round trips."""
        if not 1 <= len(name) <= 50 or not name.isprintable():
            raise Invalid("A key's name has 1 to 50 printable characters.", field="name")
        if not scopes or not set(scopes) <= set(SCOPES):
            raise Invalid(f"Scopes are {', '.join(SCOPES)}.", field="scope")
        known = await self.list_all()
        if any(key.name == name for key in known):
            raise KeyNameTaken(f"There is an API key {name!r} already. Revoke it first or use another name.")
        if len(known) >= MAX_KEYS:
            raise Conflict(f"There are {MAX_KEYS} API keys. Revoke one first.")
        now = self._clock.now_ms()
        expires_at = None if lifetime_days is None else now + lifetime_days * 86_400_000
        secret = PREFIX + secrets.token_urlsafe(32)
        value = msgspec.json.encode(ApiKey(name, tuple(sorted(set(scopes))), now, expires_at))
        await self._valkey.call("HSET", API_KEYS(), _digest(secret), value)
        return secret

    async def list_all(self) -> list[ApiKey]:
        """Return all keys, expired ones too, by name. One round trip."""
        stored, used = await self._valkey.batch([("HGETALL", API_KEYS()), ("HGETALL", API_KEY_USES())])
        keys = [
            msgspec.structs.replace(key, last_used_at=parse_int(used.get(digest), None))
            for digest, key in _decode(stored).items()
        ]
        return sorted(keys, key=lambda key: key.name)

    async def revoke(self, name: str) -> None:
        """Delete a key. Every process refuses it as soon as Valkey reports the change. Two round trips."""
        stored = _decode(await self._valkey.call("HGETALL", API_KEYS()))
        digests = [digest for digest, key in stored.items() if key.name == name]
        if not digests:
            raise NotFound(f"There is no API key {name!r}.")
        await self._valkey.call("HDEL", API_KEYS(), *digests)
        for digest in digests:
            self._by_digest.pop(digest, None)
        await self._valkey.call("HDEL", API_KEY_USES(), *digests)

    async def _read(self) -> None:
        self._is_stale = False
        self._by_digest = _decode(await self._valkey.tracked("HGETALL", API_KEYS()))

    def _on_invalidate(self, keys: list[str] | None) -> None:
        if keys is None or API_KEYS() in keys:
            self._is_stale = True
            self._wake.set()

    async def _follow(self) -> None:
        failing = False
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                if self._is_stale:
                    await self._read()
                await self._save_uses()
                failing = False
            except (Unavailable, ReplyError) as error:
                # Keys stay as they were: while Valkey is unavailable, none can be revoked either.
                if not failing:  # log once, not at every attempt
                    log.warning("api_keys_unreadable", error=str(error), retry_seconds=RETRY_SECONDS)
                failing = self._is_stale = True
                self._wake.set()
                await asyncio.sleep(RETRY_SECONDS)

    async def _save_uses(self) -> None:
        """Store when keys were used. One round trip for each key and hour."""
        while self._unsaved:
            digest = next(iter(self._unsaved))
            if digest in self._by_digest:
                await self._valkey.call("HSET", API_KEY_USES(), digest, self._used[digest])
            self._unsaved.discard(digest)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _decode(stored: dict[str, str]) -> dict[str, ApiKey]:
    """Read the hash; an entry that cannot be read is no key."""
    keys: dict[str, ApiKey] = {}
    for digest, value in stored.items():
        with contextlib.suppress(msgspec.DecodeError):
            keys[digest] = msgspec.json.decode(value, type=ApiKey)
    return keys
