"""Password hashing: right and wrong passwords, old and synced hashes, many at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import argon2
import bcrypt
import pytest

from plaza.core import passwords as module
from plaza.core.errors import Unavailable
from plaza.core.passwords import HASHER, Passwords, is_supported_hash
from tests.timeouts import TIME_LIMIT_SECONDS


@pytest.fixture
def passwords() -> Iterator[Passwords]:
    made = Passwords(threads=1)
    yield made
    made.close()


async def test_a_password_is_stored_as_argon2id_with_owasp_parameters(passwords: Passwords) -> None:
    stored = await passwords.hash("correct horse")
    assert stored.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert "correct" not in stored
    assert stored != await passwords.hash("correct horse")  # a salt of its own


async def test_the_right_password_matches_and_another_does_not(passwords: Passwords) -> None:
    for password in ("correct horse", "", "é\0x", "\ud800", "x" * 5_000):
        stored = await passwords.hash(password)
        assert (await passwords.check(stored, password)).matches
        assert not (await passwords.check(stored, password + "x")).matches


async def test_a_bcrypt_hash_of_another_system_works_and_is_replaced(passwords: Passwords) -> None:
    foreign = bcrypt.hashpw(b"correct horse", bcrypt.gensalt(4)).decode()
    for variant in (foreign, foreign.replace("$2b$", "$2a$"), foreign.replace("$2b$", "$2y$")):
        wrong = await passwords.check(variant, "wrong horse")
        assert (wrong.matches, wrong.new_hash) == (False, None)
        checked = await passwords.check(variant, "correct horse")
        assert checked.matches
        assert checked.new_hash is not None
        assert (await passwords.check(checked.new_hash, "correct horse")).matches


async def test_a_long_password_checks_against_bcrypt_as_where_it_was_made(passwords: Passwords) -> None:
    foreign = bcrypt.hashpw(b"x" * 72, bcrypt.gensalt(4)).decode()  # what older systems made of 100 characters
    assert (await passwords.check(foreign, "x" * 100)).matches
    assert not (await passwords.check(foreign, "x" * 71)).matches


async def test_an_argon2_hash_with_other_parameters_works_and_is_replaced(passwords: Passwords) -> None:
    weak = argon2.PasswordHasher(time_cost=1, memory_cost=1024, parallelism=2, type=argon2.Type.I).hash("secret")
    checked = await passwords.check(weak, "secret")
    assert checked.matches
    assert checked.new_hash is not None
    assert not HASHER.check_needs_rehash(checked.new_hash)
    assert (await passwords.check(checked.new_hash, "secret")).new_hash is None


@pytest.mark.parametrize(
    "stored",
    [
        "plain text",
        "$2b$31$" + "a" * 53,
        "$2b$03$" + "a" * 53,
        "$argon2id$v=19$m=9999999,t=2,p=1$c2FsdHNhbHQ$aGFzaGhhc2g",
        "$argon2id$v=19$m=1024,t=1000000,p=1$c2FsdHNhbHQ$aGFzaGhhc2g",
        "$argon2id$v=19$m=1024,t=1,p=255$c2FsdHNhbHQ$aGFzaGhhc2g",
        "$argon2id$v=19$m=1024,t=1,p=1$é$é",
        "$pbkdf2$x",
        "",
    ],
)
async def test_an_unknown_or_too_costly_hash_never_matches_and_is_never_checked(
    passwords: Passwords, stored: str
) -> None:
    assert not is_supported_hash(stored)
    assert not (await passwords.check(stored, "plain text")).matches


async def test_a_broken_hash_does_not_match(passwords: Passwords) -> None:
    broken = "$argon2id$v=19$m=1024,t=1,p=1$AA$AA"
    assert is_supported_hash(broken)
    assert not (await passwords.check(broken, "")).matches


async def test_an_unknown_user_costs_the_same_work_as_a_known_one(
    passwords: Passwords, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = await passwords.hash("secret")
    worked: list[argon2.Parameters] = []
    real = module._matches_argon2

    def watched(tried: str, password: bytes) -> bool:
        worked.append(argon2.extract_parameters(tried))
        return real(tried, password)

    monkeypatch.setattr(module, "_matches_argon2", watched)
    for no_hash in (None, "", "no hash at all"):
        assert not (await passwords.check(no_hash, "secret")).matches
    assert not (await passwords.check(stored, "wrong")).matches
    assert len(worked) == 4
    assert all(parameters == argon2.extract_parameters(stored) for parameters in worked)


async def test_hashing_does_not_block_the_event_loop(passwords: Passwords) -> None:
    hashing = asyncio.gather(*(passwords.hash("x") for _ in range(5)))
    turns = 0
    while not hashing.done():
        await asyncio.sleep(0.001)
        turns += 1
    # Made on the loop, all five would be done in its first turn; with the interpreter's lock held, in a few.
    assert turns > 5


async def test_forty_simultaneous_logins_are_all_checked() -> None:
    passwords = Passwords(threads=2)
    stored = await passwords.hash("a password")
    checks = await asyncio.gather(*(passwords.check(stored, "a password") for _ in range(40)))
    assert all(check.matches for check in checks)
    passwords.close()


async def test_a_check_beyond_the_limit_is_refused_and_later_ones_are_accepted() -> None:
    passwords = Passwords(threads=1, waiting=2)
    free = threading.Event()
    try:
        waiting = [asyncio.ensure_future(passwords._run(lambda: free.wait(TIME_LIMIT_SECONDS))) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(Unavailable) as error:
            await passwords.hash("x")
        assert error.value.retry_after > 0
        waiting[2].cancel()  # one who waits and gives up leaves at once; one whose work runs does not
        await asyncio.gather(waiting[2], return_exceptions=True)
        last = asyncio.ensure_future(passwords.hash("x"))
        free.set()
        assert (await last).startswith("$argon2id$")
        await asyncio.gather(*waiting[:2])
    finally:
        passwords.close()
