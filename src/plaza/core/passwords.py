"""Passwords, hashed with argon2id in threads of their own, so that the event loop never waits for one.

A check costs some 20 ms of a core and 19 MiB on purpose. That makes logins the cheapest way to overload us, so few
run at once and few may wait; beyond that the caller is told to come back.

Hashes synced from other systems may be bcrypt, or argon2 with other parameters. They are verified as they are and
replaced by ours at the next login, the one moment when the password is known.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import secrets
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeVar

import argon2
import bcrypt
from argon2.exceptions import InvalidHashError, VerificationError

from plaza.core.errors import Unavailable

T = TypeVar("T")

# The first of OWASP's equivalent choices that needs little memory: 19 MiB, two passes, one lane.
HASHER: Final = argon2.PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)

# A hash from outside names its own cost. These bounds keep one of them from holding a thread for minutes.
MAX_BCRYPT_ROUNDS: Final = 14
MAX_ARGON2_KIB: Final = 262_144
MAX_ARGON2_PASSES: Final = 10
MAX_ARGON2_LANES: Final = 8

THREADS: Final = min(4, os.cpu_count() or 1)
# About a second of waiting at the end of the queue.
WAITING: Final = 32

_ARGON2 = re.compile(
    r"\$argon2(?:id|i|d)\$v=1[69]\$m=(\d{1,9}),t=(\d{1,9}),p=(\d{1,9})\$[A-Za-z0-9+/]+\$[A-Za-z0-9+/]+"
)
_BCRYPT = re.compile(r"\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}")
# bcrypt reads 72 bytes and no more. Its hashes were made so; newer versions of the library refuse longer input.
_BCRYPT_BYTES: Final = 72


@dataclass(frozen=True, slots=True)
class Checked:
    """Whether the password was right, and the hash to store instead of the old one, if that is due."""

    right: bool
    rehashed: str | None = None


class Passwords:
    """`hash` and `check`, off the event loop. `close` when done."""

    def __init__(self, *, threads: int = THREADS, waiting: int = WAITING) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="passwords")
        self._room = threading.BoundedSemaphore(threads + waiting)
        self._nobody = _hash_of_nothing()

    async def hash(self, password: str) -> str:
        """The hash to store in place of the password."""
        return await self._run(lambda: HASHER.hash(_bytes(password)))

    async def check(self, stored: str | None, password: str) -> Checked:
        """Compare a password with a stored hash.

        Without one (nobody has that name, or no password) the same work is done for nothing, so that the time it takes
        does not tell which names exist.
        """
        return await self._run(lambda: _check(stored or "", _bytes(password), self._nobody))

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _run(self, work: Callable[[], T]) -> T:
        if not self._room.acquire(blocking=False):
            raise Unavailable("Too many people are logging in at once.", retry_after=2)
        future = self._threads.submit(work)
        # When the thread is done, not when the caller is: one who gives up leaves the work running.
        future.add_done_callback(lambda _: self._room.release())
        return await asyncio.wrap_future(future)


def recognised(stored: str) -> bool:
    """Whether a hash from outside can be checked here, at a cost we are ready to pay."""
    if match := _BCRYPT.fullmatch(stored):
        return 4 <= int(match[1]) <= MAX_BCRYPT_ROUNDS
    if match := _ARGON2.fullmatch(stored):
        kib, passes, lanes = map(int, match.groups())
        return kib <= MAX_ARGON2_KIB and passes <= MAX_ARGON2_PASSES and lanes <= MAX_ARGON2_LANES
    return False


def _check(stored: str, password: bytes, nobody: str) -> Checked:
    if not recognised(stored):
        _matches_argon2(nobody, password)
        return Checked(False)
    if stored.startswith("$2"):
        right, old = bcrypt.checkpw(password[:_BCRYPT_BYTES], stored.encode()), True
    else:
        right, old = _matches_argon2(stored, password), HASHER.check_needs_rehash(stored)
    return Checked(right, HASHER.hash(password) if right and old else None)


def _matches_argon2(stored: str, password: bytes) -> bool:
    try:
        return HASHER.verify(stored, password)
    except (VerificationError, InvalidHashError):  # the first covers a mismatch
        return False


def _hash_of_nothing() -> str:
    """A well-formed hash with today's parameters that no password has: its digest is random."""
    salt, digest = (
        base64.b64encode(secrets.token_bytes(size)).rstrip(b"=").decode() for size in (HASHER.salt_len, HASHER.hash_len)
    )
    cost = f"m={HASHER.memory_cost},t={HASHER.time_cost},p={HASHER.parallelism}"
    return f"$argon2id$v=19${cost}${salt}${digest}"


def _bytes(password: str) -> bytes:
    # JSON can carry half a surrogate pair. It is a strange password, not an error.
    return password.encode("utf-8", "surrogatepass")
