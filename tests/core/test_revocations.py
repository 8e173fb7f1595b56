"""Revocations make earlier tokens void in every process, and new tokens are valid at once."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jwt
import pytest
import redis
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from plaza.core.auth import USER, Auth
from plaza.core.clock import ManualClock
from plaza.core.errors import Unauthenticated, Unavailable
from plaza.core.keys import TOKEN_CUTOFFS
from plaza.core.number_parsing import MAX_TIME_MS
from plaza.core.revocations import MAX_SKEW_MS, NOT_REVOKED, Revocations
from plaza.core.settings import Settings
from tests.servers import Cluster, Server, running_server
from tests.timeouts import connect_with_retries
from tests.waiting import eventually as until

SECRET = "a secret of at least thirty-two bytes"


@contextlib.asynccontextmanager
async def process(
    place: Server | Cluster, folder: Path, clock: ManualClock, *, public_key: Path | None = None, **options: Any
) -> AsyncIterator[Auth]:
    """One process: a connection and a mirror of its own."""
    valkey = await connect_with_retries(place.url)
    revocations = Revocations(valkey, clock=clock, **options)
    await revocations.start()
    settings = Settings(data_dir=folder, jwt_secret=SECRET, api_key="k", jwt_public_key=public_key)
    yield Auth(settings, revocations, clock=clock)
    await revocations.close()
    await valkey.close()


@pytest.fixture
async def here(place: Server | Cluster, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Auth]:
    async with process(place, tmp_path, clock) as auth:
        yield auth


@pytest.fixture
async def there(place: Server | Cluster, tmp_path: Path) -> AsyncIterator[Auth]:
    async with process(place, tmp_path, ManualClock()) as auth:
        yield auth


def accepts(auth: Auth, token: str) -> bool:
    try:
        return auth.actor({"x-access-token": token}) is not None
    except Unauthenticated as error:
        if error.detail == "The token was revoked. Sign in again.":
            return False
        raise


async def test_a_revocation_makes_every_earlier_token_void_also_cached_ones(here: Auth) -> None:
    seen, unseen, other = here.issue("ana", USER), here.issue("ana", USER), here.issue("bob", USER)
    assert accepts(here, seen)
    await here.revoke_tokens("ana")
    assert not accepts(here, seen)
    assert not accepts(here, unseen)
    assert accepts(here, other)


async def test_every_process_learns_of_a_revocation(here: Auth, there: Auth) -> None:
    token = here.issue("ana", USER)
    assert accepts(there, token)
    await here.revoke_tokens("ana")
    await until(lambda: not accepts(there, token))


async def test_a_token_issued_right_after_a_revocation_works_in_every_process(here: Auth, there: Auth) -> None:
    for _ in range(3):  # all of it within the same millisecond
        old = here.issue("ana", USER)
        await here.revoke_tokens("ana")
        new = here.issue("ana", USER)
        await until(lambda old=old: not accepts(there, old))  # type: ignore[misc]
        assert accepts(here, new)
        assert accepts(there, new)
        assert not accepts(here, old)


async def test_a_process_whose_clock_is_behind_still_issues_tokens_that_work(
    here: Auth, there: Auth, clock: ManualClock
) -> None:
    clock.advance(seconds=2)  # `there` stays behind
    await here.revoke_tokens("ana")
    await until(lambda: there.revocations.revoked_ms("ana") != NOT_REVOKED)
    token = there.issue("ana", USER)
    assert accepts(there, token)
    assert accepts(here, token)


async def test_another_issuers_token_of_the_same_second_counts_as_older(here: Auth, clock: ManualClock) -> None:
    clock.set(1_700_000_000_500)

    def foreign(iat: float) -> str:
        return jwt.encode({"username": "ana", "role": "user", "iat": iat, "exp": 1_700_000_900}, SECRET)

    await here.revoke_tokens("ana")
    assert not accepts(here, foreign(1_699_999_999))
    assert not accepts(here, foreign(1_700_000_000))  # perhaps from before, perhaps from after
    assert not accepts(here, foreign(1_700_000_000.499))
    assert accepts(here, foreign(1_700_000_000.501))
    assert accepts(here, foreign(1_700_000_001))


async def test_a_millisecond_claim_counts_only_if_it_agrees_with_the_second(here: Auth, clock: ManualClock) -> None:
    clock.set(1_700_000_000_500)
    await here.revoke_tokens("ana")
    claims = {"username": "ana", "role": "user", "iat": 1_700_000_000, "exp": 1_700_000_900}
    assert accepts(here, jwt.encode({**claims, "iat_ms": 1_700_000_000_600}, SECRET))
    assert not accepts(here, jwt.encode({**claims, "iat_ms": 1_700_000_009_000}, SECRET))


async def test_a_suspension_during_a_login_makes_its_token_void(here: Auth, clock: ManualClock) -> None:
    stamp = here.issue_time_ms("ana")  # the password is right, the user is not suspended …
    clock.advance(seconds=0.001)
    await here.revoke_tokens("ana")  # … and now she is
    assert not accepts(here, here.issue("ana", USER, issued_ms=stamp))


async def test_revocations_from_before_the_start_are_read_in_pages(
    place: Server | Cluster, tmp_path: Path, clock: ManualClock, redis_client: Any
) -> None:
    at = clock.now_ms()
    await redis_client.zadd(TOKEN_CUTOFFS(), {f"user{i}": at - i for i in range(2_500)})
    async with process(place, tmp_path, clock, page_size=100) as auth:
        assert len(auth.revocations) == 2_500
        assert auth.revocations.revoked_ms("user7") == at - 7
        assert auth.revocations.revoked_ms("unknown") == NOT_REVOKED


async def test_many_concurrent_revocations_reach_every_process(
    place: Server | Cluster, tmp_path: Path, here: Auth, clock: ManualClock
) -> None:
    async with process(place, tmp_path, clock, page_size=10) as there:
        for auth, first in ((here, "a"), (there, "b")):
            await asyncio.gather(*(auth.revoke_tokens(f"{first}{i}") for i in range(300)))
        await until(lambda: len(here.revocations) == len(there.revocations) == 600)


async def test_users_revoked_again_are_read_page_by_page(
    place: Server | Cluster, tmp_path: Path, clock: ManualClock, redis_client: Any
) -> None:
    names = [f"user{i}" for i in range(35)]
    async with process(place, tmp_path, clock, page_size=10) as auth:
        for at in (clock.now_ms(), clock.now_ms() + 1):
            await redis_client.zadd(TOKEN_CUTOFFS(), dict.fromkeys(names, at))
            await until(lambda at=at: all(auth.revocations.revoked_ms(name) == at for name in names))  # type: ignore[misc]


def home(place: Server | Cluster) -> Server:
    """The server that holds the list."""
    if isinstance(place, Server):
        return place
    for node in place.nodes:
        with contextlib.suppress(redis.exceptions.MovedError), node.redis_client() as client:
            client.zcard(TOKEN_CUTOFFS())
            return node
    raise AssertionError("no process reads the list")


async def test_after_a_lost_connection_the_list_is_read_again(
    there: Auth, place: Server | Cluster, clock: ManualClock
) -> None:
    with home(place).redis_client() as operator:
        for round in range(3):
            operator.client_kill_filter(_type="normal", skipme=True)
            operator.zadd(TOKEN_CUTOFFS(), {f"user{round}": clock.now_ms()})  # while the process has no connection
            await until(lambda round=round: there.revocations.revoked_ms(f"user{round}") != NOT_REVOKED)  # type: ignore[misc]
        operator.zadd(TOKEN_CUTOFFS(), {"ana": clock.now_ms()})  # and it listens again
        await until(lambda: there.revocations.revoked_ms("ana") != NOT_REVOKED)


async def test_after_a_lost_connection_a_later_time_of_a_known_user_is_read(
    there: Auth, place: Server | Cluster, clock: ManualClock
) -> None:
    hours_ago = [clock.now_ms() - hours * 3_600_000 for hours in (1, 2)]
    with home(place).redis_client() as operator:
        operator.zadd(TOKEN_CUTOFFS(), {"ana": hours_ago[1]})
        await until(lambda: there.revocations.revoked_ms("ana") == hours_ago[1])
        # As after an hour without a connection: the list is as long as before, and its end says nothing new.
        with operator.pipeline() as both:
            both.client_kill_filter(_type="normal", skipme=True).zadd(TOKEN_CUTOFFS(), {"ana": hours_ago[0]}).execute()
        await until(lambda: there.revocations.revoked_ms("ana") == hours_ago[0])


async def test_an_infinite_time_revokes_permanently_and_later_changes_are_noticed(
    there: Auth, redis_client: Any, clock: ManualClock
) -> None:
    await redis_client.zadd(TOKEN_CUTOFFS(), {"ana": math.inf})
    await until(lambda: there.revocations.revoked_ms("ana") == MAX_TIME_MS)
    await redis_client.zadd(TOKEN_CUTOFFS(), {"bob": clock.now_ms()})
    await until(lambda: there.revocations.revoked_ms("bob") == clock.now_ms())


async def test_an_old_time_and_a_removal_are_noticed_too(there: Auth, redis_client: Any, clock: ManualClock) -> None:
    past = clock.now_ms() - 10 * MAX_SKEW_MS
    await redis_client.zadd(TOKEN_CUTOFFS(), {"ana": past})
    await until(lambda: there.revocations.revoked_ms("ana") == past)
    await redis_client.zrem(TOKEN_CUTOFFS(), "ana")
    await until(lambda: there.revocations.revoked_ms("ana") == NOT_REVOKED)
    await redis_client.zadd(TOKEN_CUTOFFS(), {"ana": past, "bob": past})
    await until(lambda: len(there.revocations) == 2)
    await redis_client.flushall()
    await until(lambda: len(there.revocations) == 0)


async def test_the_whole_list_is_read_again_regularly(
    place: Server | Cluster, tmp_path: Path, clock: ManualClock, redis_client: Any
) -> None:
    past = clock.now_ms() - 10 * MAX_SKEW_MS
    await redis_client.zadd(TOKEN_CUTOFFS(), {"ana": past})
    async with process(place, tmp_path, clock, full_read_seconds=0.2) as auth:
        await redis_client.zadd(TOKEN_CUTOFFS(), {"ana": past + 1})  # by a clock hours behind, of a name that is known
        await until(lambda: auth.revocations.revoked_ms("ana") == past + 1)


async def test_an_unreadable_list_is_read_again(
    place: Server | Cluster, tmp_path: Path, clock: ManualClock, redis_client: Any
) -> None:
    async with process(place, tmp_path, clock) as auth:
        await redis_client.set(TOKEN_CUTOFFS(), "not a list")
        await asyncio.sleep(0.05)
        await redis_client.delete(TOKEN_CUTOFFS())
        await redis_client.zadd(TOKEN_CUTOFFS(), {"ana": clock.now_ms()})
        await until(lambda: auth.revocations.revoked_ms("ana") != NOT_REVOKED)


async def test_a_revocation_during_a_full_read_is_not_lost(
    place: Server | Cluster, tmp_path: Path, clock: ManualClock, redis_client: Any
) -> None:
    await redis_client.zadd(TOKEN_CUTOFFS(), {f"user{i}": clock.now_ms() for i in range(2_000)})
    async with process(place, tmp_path, clock, page_size=20) as auth:
        for i in range(50):
            auth.revocations._invalidated(None)  # start reading everything again
            await asyncio.sleep(0.001 * (i % 5))
            await auth.revoke_tokens(f"late{i}")
            for _ in range(20):
                assert auth.revocations.revoked_ms(f"late{i}") != NOT_REVOKED
                await asyncio.sleep(0)


async def test_revocations_are_removed_when_all_earlier_tokens_have_expired(
    place: Server | Cluster, tmp_path: Path, clock: ManualClock, redis_client: Any
) -> None:
    async with process(place, tmp_path, clock) as auth:
        await auth.revoke_tokens("ana")
        clock.advance(days=1)
        await auth.revoke_tokens("bob")
        clock.advance(days=89.5)
    async with process(place, tmp_path, clock) as auth:
        assert (auth.revocations.revoked_ms("ana"), len(auth.revocations)) == (NOT_REVOKED, 1)
        assert await redis_client.zrange(TOKEN_CUTOFFS(), 0, -1) == ["bob"]


async def test_without_valkey_a_revocation_is_503_and_the_list_in_memory_stays(
    tmp_path: Path, clock: ManualClock
) -> None:
    with running_server() as server:
        async with process(server, tmp_path, clock) as auth:
            await auth.revoke_tokens("ana")
            server.stop()
            with pytest.raises(Unavailable):
                await auth.revoke_tokens("bob")
            assert auth.revocations.revoked_ms("ana") != NOT_REVOKED
            server.start()  # empty: this one keeps nothing
            await until(lambda: auth.revocations.revoked_ms("ana") == NOT_REVOKED)


async def test_tokens_of_another_issuer_are_revoked_too(
    place: Server | Cluster, tmp_path: Path, clock: ManualClock
) -> None:
    issuer = ec.generate_private_key(ec.SECP256R1())
    public = tmp_path / "issuer.pem"
    public.write_bytes(issuer.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    now = int(clock.now_s())

    def issued(at: int) -> str:
        claims = {"username": "ana", "role": "admin", "iat": at, "exp": at + 900}
        return jwt.encode(claims, issuer, algorithm="ES256")

    async with process(place, tmp_path, clock, public_key=public) as auth:
        before = issued(now)
        assert accepts(auth, before)
        await auth.revoke_access_tokens("ana", auth.issue_time_ms("ana"))
        assert not accepts(auth, before)
        assert accepts(auth, issued(now + 1))
