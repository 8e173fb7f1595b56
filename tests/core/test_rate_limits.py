"""Rate limits on one server and on a cluster, also for concurrent requests."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plaza.core.auth import API_NAME
from plaza.core.clock import ManualClock
from plaza.core.errors import TooFast, Unavailable
from plaza.core.functions import Functions
from plaza.core.keys import CATALOGUE, LIMIT_ADDRESS, LIMIT_USER
from plaza.core.keyspace import Layout
from plaza.core.rate_limits import (
    LIBRARY,
    POLICIES,
    Limiter,
    LimitState,
    Policy,
    Quota,
    RateLimited,
    address_subject,
    user_subject,
)
from plaza.core.valkey import REQUEST_USAGE, RequestUsage, Valkey
from tests.servers import running_server
from tests.timeouts import connect_with_retries
from tests.waiting import eventually

HERE, THERE = "192.0.2.1", "192.0.2.2"

# Small, so that a test can use it up: three at once, then one every two seconds; an address gets five.
SMALL = {"write": Policy(user=Quota(3, 6), address=Quota(5, 10))}


@pytest.fixture
async def functions(valkey: Valkey) -> Functions:
    loaded = Functions(valkey, [LIBRARY])
    await loaded.load()
    return loaded


@pytest.fixture
def limiter(functions: Functions, clock: ManualClock) -> Limiter:
    return Limiter(functions, policies=SMALL, clock=clock)


async def allowed(limiter: Limiter, tries: int, name: str | None, address: str | None = None) -> int:
    """How many of so many requests in turn are let through."""
    count = 0
    for _ in range(tries):
        try:
            await limiter.take("write", name, address)
        except RateLimited:
            continue
        count += 1
    return count


async def test_a_user_spends_the_quota_at_once_and_gets_it_back_evenly(limiter: Limiter, clock: ManualClock) -> None:
    assert await allowed(limiter, 10, "ana") == 3
    clock.advance(seconds=1.999)
    assert await allowed(limiter, 10, "ana") == 0
    clock.advance(seconds=0.001)
    assert await allowed(limiter, 10, "ana") == 1
    clock.advance(seconds=4)
    assert await allowed(limiter, 10, "ana") == 2
    clock.advance(days=1)
    assert await allowed(limiter, 10, "ana") == 3  # what was not used is not saved up


async def test_no_window_of_the_clock_lets_through_twice_the_quota(limiter: Limiter, clock: ManualClock) -> None:
    passed: list[int] = []
    for _ in range(200):  # 40 s, five tries a second
        if await allowed(limiter, 1, "ana"):
            passed.append(clock.now_ms())
        clock.advance(seconds=0.2)
    # Any six seconds hold what was saved up, and what came in meanwhile: at most three more.
    assert all(sum(start <= at < start + 6_000 for at in passed) <= 6 for start in passed)
    assert len(passed) == 3 + 40 // 2 - 1


async def test_users_do_not_count_against_each_other_unless_they_share_an_address(limiter: Limiter) -> None:
    assert await allowed(limiter, 5, "ana") == 3
    assert await allowed(limiter, 5, "bob") == 3
    assert await allowed(limiter, 5, "cyd", HERE) == 3
    assert await allowed(limiter, 5, "dee", HERE) == 2
    assert await allowed(limiter, 5, "dee", THERE) == 1


async def test_an_anonymous_client_counts_by_address(limiter: Limiter) -> None:
    assert await allowed(limiter, 10, None, HERE) == 5
    assert await allowed(limiter, 10, None, THERE) == 5


async def test_a_refused_request_is_not_counted(limiter: Limiter, redis_client: Any, clock: ManualClock) -> None:
    assert await allowed(limiter, 3, "ana", HERE) == 3
    keys = LIMIT_USER("write", "ana"), LIMIT_ADDRESS("write", HERE)
    before = [await redis_client.get(key) for key in keys]
    assert await allowed(limiter, 50, "ana", HERE) == 0
    assert [await redis_client.get(key) for key in keys] == before
    assert await allowed(limiter, 10, "bob", HERE) == 2  # the address still had two


async def test_a_request_after_the_time_in_the_refusal_is_accepted(limiter: Limiter, clock: ManualClock) -> None:
    await allowed(limiter, 3, "ana", HERE)
    clock.advance(seconds=0.5)
    with pytest.raises(TooFast) as error:
        await limiter.take("write", "ana", HERE)
    assert error.value.status == 429
    assert error.value.retry_after == 2  # 1.5 s, rounded up to what Retry-After can say
    assert isinstance(error.value, RateLimited)
    assert error.value.limit == LimitState("write", Quota(3, 6), 0, 2)
    clock.advance(seconds=error.value.retry_after)
    assert await limiter.take("write", "ana", HERE) is not None


async def test_the_headers_show_whichever_of_user_and_address_has_fewer_left(limiter: Limiter) -> None:
    states = []
    for name in ("ana", "ana", "bob", "bob"):
        state = await limiter.take("write", name, HERE)
        assert state is not None
        states.append([value for _, value in state.headers()])
    assert states == [
        ['"write";q=3;w=6', '"write";r=2;t=2'],
        ['"write";q=3;w=6', '"write";r=1;t=4'],
        ['"write";q=3;w=6', '"write";r=2;t=2'],
        ['"write";q=3;w=6', '"write";r=1;t=4'],
    ]
    last = await limiter.take("write", "cyd", HERE)
    assert last is not None
    assert last.headers() == (
        ("ratelimit-policy", '"write";q=5;w=10'),
        ("ratelimit", '"write";r=0;t=10'),
    )


@pytest.mark.parametrize("kind", POLICIES)
async def test_each_policy_lets_exactly_its_quota_through(functions: Functions, clock: ManualClock, kind: str) -> None:
    """Also where the quota does not divide the window: no rounding eats the last request."""
    odd = Policy(user=Quota(199, 7), address=Quota(199, 7))
    limiter = Limiter(functions, clock=clock, policies={**POLICIES, "odd": odd})
    for name in (kind, "odd"):
        quota = (odd if name == "odd" else POLICIES[name]).user
        taken = [limiter.take(name, f"{kind}-ana", None) for _ in range(quota.count + 5)]
        answers = await asyncio.gather(*taken, return_exceptions=True)
        left = [answer.left for answer in answers if isinstance(answer, LimitState)]
        assert left == list(reversed(range(quota.count)))


async def test_concurrent_requests_get_exactly_the_quota(functions: Functions, clock: ManualClock) -> None:
    processes = [Limiter(functions, policies=SMALL, clock=clock) for _ in range(4)]
    asked = (processes[i % 4].take("write", None, HERE) for i in range(200))
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert sum(isinstance(answer, LimitState) for answer in answers) == 5
    assert sum(isinstance(answer, RateLimited) for answer in answers) == 195


async def test_many_users_of_one_address_get_its_quota_and_lose_none_of_their_own(
    limiter: Limiter, clock: ManualClock
) -> None:
    asked = (limiter.take("write", f"user{i % 20}", HERE) for i in range(100))
    answers = await asyncio.gather(*asked, return_exceptions=True)
    passed = sum(isinstance(answer, LimitState) for answer in answers)
    assert 1 <= passed <= 5
    # A user who was refused because of the address has the full quota elsewhere, less the accepted requests.
    left = [await allowed(limiter, 3, f"user{i}") for i in range(20)]
    assert sum(left) == 20 * 3 - passed


async def test_one_request_is_one_round_trip_and_none_when_switched_off(
    functions: Functions, clock: ManualClock
) -> None:
    for on, trips in ((True, 2 if functions.valkey.clustered else 1), (False, 0)):
        limiter, usage = Limiter(functions, on=on, clock=clock), RequestUsage()
        mark = REQUEST_USAGE.set(usage)
        state = await limiter.take("write", "ana", HERE)
        REQUEST_USAGE.reset(mark)
        assert (usage.trips, state is not None) == (trips, on)


async def test_the_api_key_is_not_limited(limiter: Limiter) -> None:
    assert await allowed(limiter, 50, API_NAME, HERE) == 50


async def test_a_successful_attempt_is_given_back(limiter: Limiter, redis_client: Any) -> None:
    for _ in range(10):
        await limiter.take("write", "ana", None)
        await limiter.give_back("write", "ana")
    assert not await redis_client.exists(LIMIT_USER("write", "ana"))
    assert await allowed(limiter, 5, "ana") == 3
    await limiter.give_back("write", "ana")
    assert await allowed(limiter, 5, "ana") == 1
    for _ in range(10):
        await limiter.give_back("write", "bob")  # never more than the whole quota
    assert await allowed(limiter, 5, "bob") == 3


async def test_keys_expire_when_they_have_no_meaning(functions: Functions, redis_client: Any) -> None:
    policies = {"write": Policy(Quota(20, 1200), Quota(20, 1200)), "read": Policy(Quota(20, 2), Quota(20, 2))}
    limiter = Limiter(functions, policies=policies)  # the server's own clock
    for kind in policies:
        state = await limiter.take(kind, "ana", HERE)
        assert state is not None
        assert state.left == 19
    assert all([0 < await redis_client.pttl(key) <= 60_000 for key in limits_of("write")])

    async def gone() -> bool:
        return not any([await redis_client.exists(key) for key in limits_of("read")])

    await eventually(gone)


def limits_of(kind: str) -> tuple[str, str]:
    return LIMIT_USER(kind, "ana"), LIMIT_ADDRESS(kind, HERE)


async def test_a_clock_that_was_ahead_locks_no_user_out(limiter: Limiter, clock: ManualClock) -> None:
    clock.advance(days=1)
    assert await allowed(limiter, 3, "ana") == 3
    clock.advance(days=-1)
    assert await allowed(limiter, 5, "ana") == 3


ADDRESSES = {
    "2001:db8::1": "20010db800000000",
    "2001:DB8:0:0:ffff::9": "20010db800000000",
    "2001:db8:0:1::1": "20010db800000001",
    "::ffff:192.0.2.1": "192.0.2.1",
    "192.0.2.1": "192.0.2.1",
    "fe80::1%eth0": "fe80000000000000",
}


@pytest.mark.parametrize(("address", "subject"), ADDRESSES.items())
def test_an_ipv6_address_counts_as_its_network(address: str, subject: str) -> None:
    assert address_subject(address) == subject


def test_an_invalid_address_or_name_is_a_subject_of_its_own() -> None:
    odd = ["", "local", "testclient", "1.2.3", "999.1.1.1", "a:b", "\ud800"]
    assert len({address_subject(text) for text in odd}) == len(odd)
    assert user_subject("ana") == "ana"
    assert user_subject("Ana") == "Ana"


@given(st.text(max_size=50), st.text(max_size=50))
def test_no_name_or_address_can_write_outside_its_key(name: str, address: str) -> None:
    for layout in Layout:
        user = LIMIT_USER.name(layout, "auth", user_subject(name))
        somewhere = LIMIT_ADDRESS.name(layout, "auth", address_subject(address))
        for key, family in ((user, LIMIT_USER), (somewhere, LIMIT_ADDRESS)):
            found = CATALOGUE.match(key, layout)
            assert found is not None
            assert found.key is family


def test_every_policy_is_stricter_for_a_user_than_for_an_address_and_mail_and_auth_are_the_strictest() -> None:
    rates = {kind: policy.user.count / policy.user.seconds for kind, policy in POLICIES.items()}
    for kind, policy in POLICIES.items():
        if policy.address is not None:
            assert rates[kind] < policy.address.count / policy.address.seconds
        for quota in (policy.user, policy.address or policy.user):
            # The function's whole microseconds let exactly the quota through only while an interval outweighs them.
            assert quota.seconds * 1_000_000 // quota.count > quota.count
    assert sorted(rates, key=lambda kind: rates[kind])[:4] == ["mail", "export", "guess", "report"]


def described(quota: Quota | None) -> str:
    return "" if quota is None else f"{quota.count} in {quota.seconds} s"


def test_the_documented_limits_are_the_real_ones() -> None:
    page = (Path(__file__).parents[2] / "docs" / "auth.md").read_text()
    rows = [
        f"| `{kind}` | {described(policy.user)} | {described(policy.address)} |" for kind, policy in POLICIES.items()
    ]
    assert "\n".join(rows) + "\n\n" in page


async def test_an_unreachable_valkey_is_503_and_not_500() -> None:
    with running_server() as server:
        valkey = await connect_with_retries(server.url)
        limiter = Limiter(Functions(valkey, [LIBRARY]))
        server.stop()
        with pytest.raises(Unavailable):
            await limiter.take("write", "ana", HERE)
        await valkey.close()
