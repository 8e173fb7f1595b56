"""Guessing passwords is limited, and attackers cannot lock a user out of the devices they use."""

from __future__ import annotations

from contextlib import suppress

import pytest

from plaza.core import rate_limits
from plaza.core.clock import ManualClock
from plaza.core.functions import Functions
from plaza.core.rate_limits import POLICIES, Limiter, RateLimited
from plaza.core.sign_in_limits import DEVICE_SECONDS, SignInLimits
from plaza.core.valkey import Valkey

SECRET = "a secret of at least thirty-two bytes"
GUESSES = POLICIES["guess"].user.count
TOTAL = POLICIES["auth"].user.count


@pytest.fixture
async def limits(valkey: Valkey, clock: ManualClock) -> SignInLimits:
    functions = Functions(valkey, [rate_limits.LIBRARY])
    await functions.load()
    return SignInLimits(Limiter(functions, clock=clock), SECRET, clock)


async def test_an_address_has_few_guesses_and_does_not_use_up_those_of_others(limits: SignInLimits) -> None:
    for _ in range(GUESSES):
        await limits.take("ana", "203.0.113.9")
    for _ in range(TOTAL):
        with pytest.raises(RateLimited):
            await limits.take("ana", "203.0.113.9")
    await limits.take("ana", "198.51.100.7")
    await limits.take("bob", "203.0.113.9")


async def test_an_ipv6_network_counts_as_one_address(limits: SignInLimits) -> None:
    for i in range(GUESSES):
        await limits.take("ana", f"2001:db8::{i:x}")
    with pytest.raises(RateLimited):
        await limits.take("ana", "2001:db8::ffff")


async def test_many_addresses_together_are_limited_but_not_a_known_device(limits: SignInLimits) -> None:
    device = limits.new_device("ana")
    for i in range(TOTAL):
        await limits.take("ana", f"198.51.{i}.7")
    with pytest.raises(RateLimited):
        await limits.take("ana", "203.0.113.9")
    await limits.take("ana", "203.0.113.9", device)
    with pytest.raises(RateLimited):
        await limits.take("ana", "203.0.113.9", limits.new_device("bob"))


async def test_an_hour_has_at_most_a_hundred_guesses_from_all_addresses(
    limits: SignInLimits, clock: ManualClock
) -> None:
    guesses = 0
    for minute in range(60):
        for i in range(TOTAL + 1 if minute == 0 else 3):
            with suppress(RateLimited):
                await limits.take("ana", f"198.{minute}.{i}.7")
                guesses += 1
        clock.advance(seconds=60)
    assert TOTAL < guesses <= 100


async def test_guesses_on_a_known_device_are_limited_too(limits: SignInLimits) -> None:
    device = limits.new_device("ana")
    for _ in range(POLICIES["device"].user.count):
        await limits.take("ana", "203.0.113.9", device)
    with pytest.raises(RateLimited):
        await limits.take("ana", "198.51.100.7", device)
    await limits.take("ana", "203.0.113.9")  # a stolen cookie locks only itself out


async def test_a_right_password_is_not_counted(limits: SignInLimits) -> None:
    device = limits.new_device("ana")
    for _ in range(TOTAL + 1):
        await limits.take("ana", None)
        await limits.give_back("ana", None)
        await limits.take("ana", "203.0.113.9", device)
        await limits.give_back("ana", "203.0.113.9", device)


async def test_only_cookies_that_plaza_signed_for_this_user_are_known(clock: ManualClock, limits: SignInLimits) -> None:
    device = limits.new_device("ana")
    assert limits.is_known("ana", device)
    assert limits.caller("ana", "203.0.113.9", device).is_known
    assert not limits.caller("bob", "203.0.113.9", device).is_known
    head, _, signature = device.rpartition(".")
    forged = [f"x{device}", f"{head[:-1]}9.{signature}", head, f".{signature}", "..", "é.1.é", device + "x" * 200, ""]
    assert not any(limits.is_known("ana", cookie) for cookie in forged)
    clock.advance(seconds=DEVICE_SECONDS + 1)
    assert not limits.is_known("ana", device)


async def test_a_signed_in_user_counts_apart_from_other_clients(limits: SignInLimits) -> None:
    for i in range(TOTAL):
        await limits.take("ana", f"198.51.{i}.7")
    for _ in range(POLICIES["device"].user.count):
        await limits.take_signed_in("ana")
    with pytest.raises(RateLimited):
        await limits.take_signed_in("ana")
