"""Password hashing with argon2id, in threads, so that the event loop never waits for it.

A check costs about 20 ms of a core and 19 MiB, on purpose. A flood of logins would overload the process, so few checks
run at once, few wait, and more are refused with 503. Callers take turns: a flood from one address delays only itself.

Hashes synced from other systems may be bcrypt, or argon2 with other parameters. They are checked as they are, and
replaced at the next login, when the password is known.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import re
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import argon2
import bcrypt
from argon2.exceptions import InvalidHashError, VerificationError
from msgspec import Struct

from plaza.core.fair_queue import FairQueue
from plaza.core.password_strength import require_strong

T = TypeVar("T")

# One of the equivalent choices that OWASP recommends: 19 MiB, two passes, one lane.
HASHER: Final = argon2.PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)

# A synced hash contains its own cost. These limits keep a check from occupying a thread for minutes.
MAX_BCRYPT_ROUNDS: Final = 14
MAX_ARGON2_KIB: Final = 262_144
MAX_ARGON2_PASSES: Final = 10
MAX_ARGON2_LANES: Final = 8

THREADS: Final = min(4, os.cpu_count() or 1)
# About two seconds of waiting for the last one, on two cores.
MAX_WAITING: Final = 128

_ARGON2 = re.compile(
    r"\$argon2(?:id|i|d)\$v=1[69]\$m=(\d{1,9}),t=(\d{1,9}),p=(\d{1,9})\$[A-Za-z0-9+/]+\$[A-Za-z0-9+/]+"
)
_BCRYPT = re.compile(r"\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}")
# bcrypt uses only the first 72 bytes of a password. Newer versions of the library refuse longer ones.
_BCRYPT_BYTES: Final = 72


class PasswordCheck(Struct, frozen=True):
    """Whether a password matches, and the hash that should replace the stored one, if that is outdated."""

    matches: bool
    new_hash: str | None = None


class PasswordCaller(Struct, frozen=True):
    """Who waits for a password to be hashed: the address or device, and whether the user is known there."""

    name: str = ""
    is_known: bool = False


NO_CALLER: Final = PasswordCaller()


class Passwords:
    """Hashes and checks passwords outside the event loop."""

    def __init__(self, *, threads: int = THREADS, waiting: int = MAX_WAITING) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="passwords")
        self._queue = FairQueue(threads, waiting, "Too many logins at once. Try again.")
        self._dummy_hash = _dummy_hash()

    async def hash(self, password: str, caller: PasswordCaller = NO_CALLER) -> str:
        """Return the hash to store instead of the password."""
        return await self._run(lambda: HASHER.hash(_bytes(password)), caller)

    async def hash_new(
        self, password: str, username: str, field: str = "password", caller: PasswordCaller = NO_CALLER
    ) -> str:
        """Return the hash of a user's new password, or raise `WeakPassword` for this field of the request."""
        await self.require_strong(password, username, field, caller)
        return await self.hash(password, caller)

    async def require_strong(
        self, password: str, username: str, field: str = "password", caller: PasswordCaller = NO_CALLER
    ) -> None:
        """Raise `WeakPassword` if a user's new password is easy to guess."""
        await self._run(lambda: require_strong(password, username, field), caller)

    async def check(self, stored: str | None, password: str, caller: PasswordCaller = NO_CALLER) -> PasswordCheck:
        """Compare a password with a stored hash.

        Without a hash (no such user, or no password) the same work is done, so that the duration does not reveal which
        users exist.
        """
        return await self._run(lambda: _check(stored or "", _bytes(password), self._dummy_hash), caller)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _run(self, work: Callable[[], T], caller: PasswordCaller = NO_CALLER) -> T:
        await self._queue.enter(caller.name, preferred=caller.is_known)
        loop = asyncio.get_running_loop()

        def leave(_: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._queue.leave)

        future = self._threads.submit(work)
        # When the thread is done, not the caller: a cancelled caller leaves its thread running.
        future.add_done_callback(leave)
        return await asyncio.wrap_future(future)


def is_password(stored: str | None, password: str) -> bool:
    """Whether a password matches a hash. It takes as long as a check, so call it in a thread."""
    return _check(stored or "", _bytes(password), _dummy_hash()).matches


def is_supported_hash(stored: str) -> bool:
    """Whether a synced hash can be checked, at an acceptable cost."""
    if match := _BCRYPT.fullmatch(stored):
        return 4 <= int(match[1]) <= MAX_BCRYPT_ROUNDS
    if match := _ARGON2.fullmatch(stored):
        kib, passes, lanes = map(int, match.groups())
        return kib <= MAX_ARGON2_KIB and passes <= MAX_ARGON2_PASSES and lanes <= MAX_ARGON2_LANES
    return False


def _check(stored: str, password: bytes, dummy_hash: str) -> PasswordCheck:
    if not is_supported_hash(stored):
        _matches_argon2(dummy_hash, password)
        return PasswordCheck(False)
    if stored.startswith("$2"):
        matches, outdated = bcrypt.checkpw(password[:_BCRYPT_BYTES], stored.encode()), True
    else:
        matches, outdated = _matches_argon2(stored, password), HASHER.check_needs_rehash(stored)
    return PasswordCheck(matches, HASHER.hash(password) if matches and outdated else None)


def _matches_argon2(stored: str, password: bytes) -> bool:
    try:
        return HASHER.verify(stored, password)
    except (VerificationError, InvalidHashError):  # VerificationError includes a mismatch
        return False


def _dummy_hash() -> str:
    """A valid hash with the current parameters and a random digest, which no password matches."""
    salt, digest = (
        base64.b64encode(secrets.token_bytes(size)).rstrip(b"=").decode() for size in (HASHER.salt_len, HASHER.hash_len)
    )
    cost = f"m={HASHER.memory_cost},t={HASHER.time_cost},p={HASHER.parallelism}"
    return f"$argon2id$v=19${cost}${salt}${digest}"


def _bytes(password: str) -> bytes:
    # JSON text can contain half a surrogate pair, which plain UTF-8 refuses.
    return password.encode("utf-8", "surrogatepass")
