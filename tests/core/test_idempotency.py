"""A request that is sent again is not done again, whatever happens to whoever does it."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from plaza.core import idempotency as module
from plaza.core.auth import ADMIN, API, USER, Actor
from plaza.core.errors import Invalid, NotFound, Unavailable
from plaza.core.idempotency import (
    LEASE_MS,
    BufferedResponse,
    Idempotency,
    IdempotentRequest,
    KeyReused,
    StillRunning,
    caller_id,
)
from plaza.core.keys import CATALOGUE, IDEMPOTENCY, IDEMPOTENCY_DAY
from plaza.core.valkey import REQUEST_USAGE, RequestUsage, Valkey
from tests.servers import running_server
from tests.timeouts import TIME_LIMIT_SECONDS, connect_with_retries, within_time_limit
from tests.waiting import eventually

ANA = caller_id(Actor("ana", USER), "192.0.2.1")


def keyed(
    body: bytes = b'{"title": "a"}', *, caller: str = ANA, key: str = "k1", target: str = "/articles"
) -> IdempotentRequest:
    return IdempotentRequest.from_request(caller, key, "POST", target, body)


class Shop:
    """Work that counts how often it was done, and answers as it is told."""

    def __init__(self, status: int = 201, headers: tuple[tuple[str, str], ...] = ()) -> None:
        self.status = status
        self.headers = (("content-type", "application/json"), *headers)
        self.runs: list[str] = []
        self.begun, self.go = asyncio.Event(), asyncio.Event()
        self.go.set()

    async def __call__(self, operation: str) -> BufferedResponse:
        self.runs.append(operation)
        self.begun.set()
        await self.go.wait()
        return BufferedResponse(self.status, self.headers, b'{"id": %d}' % len(self.runs))


async def begin(idempotency: Idempotency, shop: Shop) -> asyncio.Task[BufferedResponse]:
    """A request whose work has begun and goes on until `shop.go` is set."""
    shop.go.clear()
    task = asyncio.create_task(idempotency.run_once(keyed(), shop))
    await shop.begun.wait()
    return task


@pytest.fixture
async def idempotency(valkey: Valkey) -> Idempotency:
    return Idempotency(valkey)


async def test_the_same_request_gets_the_first_answer_again(idempotency: Idempotency) -> None:
    shop = Shop(headers=(("location", "/articles/1"),))
    first = await idempotency.run_once(keyed(), shop)
    again = await idempotency.run_once(keyed(), shop)
    assert len(shop.runs) == 1
    assert (first.status, first.body, first.replayed) == (201, b'{"id": 1}', False)
    assert (again.status, again.body, again.replayed) == (201, b'{"id": 1}', True)
    assert again.headers == (
        ("content-type", "application/json"),
        ("location", "/articles/1"),
        ("idempotency-replayed", "true"),
    )


async def test_of_a_hundred_equal_requests_at_once_exactly_one_runs(valkey: Valkey) -> None:
    shop = Shop()
    shop.go.clear()
    processes = [Idempotency(valkey) for _ in range(4)]
    asked = [asyncio.ensure_future(processes[i % 4].run_once(keyed(), shop)) for i in range(100)]
    done, running = await asyncio.wait(asked, timeout=TIME_LIMIT_SECONDS, return_when=asyncio.FIRST_EXCEPTION)
    while len(done) < 99:
        more, running = await asyncio.wait(running, timeout=TIME_LIMIT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        done |= more
    assert Counter(type(task.exception()) for task in done) == {StillRunning: 99}
    shop.go.set()
    assert [(await task).replayed for task in running] == [False]
    again = await asyncio.gather(*(processes[i % 4].run_once(keyed(), shop) for i in range(100)))
    assert all(reply.replayed and reply.body == b'{"id": 1}' for reply in again)
    assert len(shop.runs) == 1


@pytest.mark.parametrize(
    "other",
    [keyed(b'{"title": "b"}'), keyed(b""), keyed(target="/posts"), keyed(target="/articles?x=1")],
    ids=["body", "no body", "path", "query"],
)
async def test_the_same_key_for_another_request_is_refused_while_it_runs_and_after(
    idempotency: Idempotency, other: IdempotentRequest
) -> None:
    shop = Shop()
    running = await begin(idempotency, shop)
    for _ in ("while it runs", "after"):
        with pytest.raises(KeyReused) as error:
            await idempotency.run_once(other, shop)
        assert (error.value.status, error.value.extra["field"]) == (422, "Idempotency-Key")
        shop.go.set()
        await running
    assert len(shop.runs) == 1


async def test_the_method_is_part_of_the_request() -> None:
    assert (
        IdempotentRequest.from_request(ANA, "k", "POST", "/x", b"").request_hash
        != IdempotentRequest.from_request(ANA, "k", "PUT", "/x", b"").request_hash
    )
    assert (
        IdempotentRequest.from_request(ANA, "k", "POST", "/x", b"").request_hash
        != IdempotentRequest.from_request(ANA, "k", "POST", "/x\n", b"").request_hash
    )


async def test_while_the_first_runs_the_second_hears_so_and_when_to_come_back(idempotency: Idempotency) -> None:
    shop = Shop()
    running = await begin(idempotency, shop)
    with pytest.raises(StillRunning) as error:
        await idempotency.run_once(keyed(), shop)
    assert (error.value.status, error.value.retry_after) == (409, 1.0)
    shop.go.set()
    assert (await running).status == 201


async def test_callers_never_meet(idempotency: Idempotency) -> None:
    callers = [
        caller_id(Actor("ana", USER), "192.0.2.1"),
        caller_id(Actor("bob", USER), "192.0.2.1"),
        caller_id(API, "192.0.2.1"),
        caller_id(None, "192.0.2.1"),
        caller_id(None, "192.0.2.2"),
        caller_id(None, "actor ana"),
    ]
    shop = Shop()
    replies = [await idempotency.run_once(keyed(caller=caller), shop) for caller in callers]
    assert not any(reply.replayed for reply in replies)
    assert len(set(shop.runs)) == len(callers)
    moved = caller_id(Actor("ana", ADMIN), "203.0.113.9")  # the same person elsewhere, with another role
    assert (await idempotency.run_once(keyed(caller=moved), shop)).replayed


@pytest.mark.parametrize("key", ["", "x" * 256, "a b", "é", "a\n", "\x7f", "\ud800"])
async def test_a_key_is_one_to_255_visible_characters(key: str) -> None:
    with pytest.raises(Invalid) as error:
        keyed(key=key)
    assert error.value.extra["field"] == "Idempotency-Key"


@pytest.mark.parametrize("key", ["x", "~" * 255, "{braces}:and:colons", '"quoted"', "*?[a-z]"])
async def test_any_visible_key_works_and_becomes_a_declared_name(
    idempotency: Idempotency, redis_client: Any, key: str
) -> None:
    shop = Shop()
    await idempotency.run_once(keyed(key=key), shop)
    assert (await idempotency.run_once(keyed(key=key), shop)).replayed
    name = IDEMPOTENCY(keyed(key=key).key)
    assert await redis_client.exists(name) == 1
    found = CATALOGUE.match(name)
    assert found is not None
    assert found.key is IDEMPOTENCY


@pytest.mark.parametrize("status", [500, 502, 503, 400, 401, 413, 422, 429])
async def test_a_failure_that_did_nothing_is_not_remembered(idempotency: Idempotency, status: int) -> None:
    shop = Shop(status)
    assert (await idempotency.run_once(keyed(), shop)).status == status
    shop.status = 201
    assert (await idempotency.run_once(keyed(), shop)).status == 201
    assert len(shop.runs) == 2


@pytest.mark.parametrize("status", [200, 202, 403, 404, 409, 410])
async def test_an_answer_that_says_how_things_were_is_remembered(idempotency: Idempotency, status: int) -> None:
    shop = Shop(status)
    assert (await idempotency.run_once(keyed(), shop)).status == status
    shop.status = 201
    assert (await idempotency.run_once(keyed(), shop)).status == status


@pytest.mark.parametrize("error", [NotFound("x"), Unavailable("x"), RuntimeError("x"), asyncio.CancelledError()])
async def test_work_that_raises_frees_the_key_at_once(idempotency: Idempotency, error: BaseException) -> None:
    async def fails(operation: str) -> BufferedResponse:
        raise error

    with pytest.raises(type(error)):
        await idempotency.run_once(keyed(), fails)
    assert not (await idempotency.run_once(keyed(), Shop())).replayed


async def test_a_request_that_is_cancelled_frees_the_key(idempotency: Idempotency) -> None:
    shop = Shop()
    running = await begin(idempotency, shop)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    shop.go.set()
    assert (await idempotency.run_once(keyed(), shop)).status == 201


async def test_the_answer_stays_for_a_day_and_a_claim_for_seconds(idempotency: Idempotency, redis_client: Any) -> None:
    shop = Shop()
    running = await begin(idempotency, shop)
    assert 0 < await redis_client.pttl(IDEMPOTENCY(keyed().key)) <= 10_000
    shop.go.set()
    await running
    assert 86_390_000 < await redis_client.pttl(IDEMPOTENCY(keyed().key)) <= 86_400_000


async def test_what_is_kept_holds_no_request_no_key_no_cookie_and_no_name(
    idempotency: Idempotency, redis_client: Any
) -> None:
    shop = Shop(headers=(("Set-Cookie", "plaza=secret-cookie"), ("x-request-id", "r1"), ("ETag", '"1"')))
    request = keyed(b'{"card": "4111"}', key="the-key")
    await idempotency.run_once(request, shop)
    kept = await redis_client.get(IDEMPOTENCY(request.key))
    for secret in ("4111", "the-key", "secret-cookie", "ana", "r1"):
        assert secret not in kept
    again = await idempotency.run_once(request, shop)
    assert [name for name, _ in again.headers] == ["content-type", "etag", "idempotency-replayed"]


async def test_a_body_of_any_bytes_comes_back_as_it_was(idempotency: Idempotency) -> None:
    async def binary(operation: str) -> BufferedResponse:
        return BufferedResponse(200, (), bytes(range(256)))

    await idempotency.run_once(keyed(), binary)
    assert (await idempotency.run_once(keyed(), binary)).body == bytes(range(256))


async def test_the_dead_free_their_key_after_the_lease(idempotency: Idempotency, valkey: Valkey) -> None:
    shop = Shop()
    # A process that dies says nothing more: its claim is all that is left of it.
    name, claim = IDEMPOTENCY(keyed().key), module._encode(module.RunningRequest(keyed().request_hash, "of the dead"))
    await valkey.call("SET", name, claim, "PX", LEASE_MS)
    with pytest.raises(StillRunning):
        await idempotency.run_once(keyed(), shop)
    assert await valkey.call("PEXPIRE", name, 1)  # the others did not shorten or lengthen it, and now it is over
    await eventually(lambda: gone(valkey, name))
    assert not (await idempotency.run_once(keyed(), shop)).replayed


async def gone(valkey: Valkey, name: str) -> bool:
    return not await valkey.call("EXISTS", name)


async def test_an_operation_is_one_request_within_a_day(idempotency: Idempotency, redis_client: Any) -> None:
    shop = Shop(status=503)  # whether anything was done, nobody knows: the key is free, and the operation the same
    for request in (keyed(), keyed(), keyed(b'{"title": "b"}')):
        await idempotency.run_once(request, shop)
    first, again, other = shop.runs
    assert first == again != other
    assert 86_390_000 < await redis_client.pttl(IDEMPOTENCY_DAY(keyed().key)) <= 86_400_000
    await redis_client.delete(IDEMPOTENCY_DAY(keyed().key))  # as if that day were over
    await idempotency.run_once(keyed(), shop)
    assert shop.runs[-1] not in (first, other)


async def test_work_longer_than_the_lease_keeps_its_key(valkey: Valkey) -> None:
    idempotency = Idempotency(valkey, lease_ms=3_000)
    shop, name = Shop(), IDEMPOTENCY(keyed().key)

    async def renewed() -> bool:
        return bool(await valkey.call("PTTL", name) > 2_500)

    running = await begin(idempotency, shop)
    for _ in range(2):
        await valkey.call("PEXPIRE", name, 2_500)  # as if some of it had passed
        await eventually(renewed)
        async with within_time_limit():
            with pytest.raises(StillRunning):
                await idempotency.run_once(keyed(), shop)
    shop.go.set()
    await running
    await asyncio.sleep(1.1)  # no renewal comes after the answer and shortens its day
    assert not [task for task in asyncio.all_tasks() if "renew" in repr(task)]
    assert await valkey.call("PTTL", IDEMPOTENCY(keyed().key)) > 80_000_000
    assert (await idempotency.run_once(keyed(), shop)).replayed
    assert len(shop.runs) == 1


@pytest.mark.parametrize("status", [201, 500])
async def test_a_run_that_lost_its_lease_touches_nobodys_answer(
    valkey: Valkey, idempotency: Idempotency, status: int
) -> None:
    slow, quick = Shop(status), Shop(202)
    lost = await begin(idempotency, slow)
    await valkey.call("DEL", IDEMPOTENCY(keyed().key))  # as if it had stalled past its lease
    assert (await idempotency.run_once(keyed(), quick)).status == 202
    slow.go.set()
    assert (await lost).status == status  # what it did, it did
    again = await idempotency.run_once(keyed(), quick)
    assert (again.status, again.replayed) == (202, True)


async def test_running_takes_two_round_trips_and_replaying_one(valkey: Valkey) -> None:
    idempotency = Idempotency(valkey)
    for expected in (2, 1):
        usage = RequestUsage()
        mark = REQUEST_USAGE.set(usage)
        await idempotency.run_once(keyed(), Shop())
        REQUEST_USAGE.reset(mark)
        assert usage.trips == expected


async def test_without_valkey_nothing_runs_and_done_work_is_still_answered() -> None:
    with running_server() as server:
        valkey = await connect_with_retries(server.url)
        idempotency, shop = Idempotency(valkey), Shop()
        running = await begin(idempotency, shop)
        server.stop()
        shop.go.set()
        assert (await running).status == 201
        with pytest.raises(Unavailable):
            await idempotency.run_once(keyed(key="k2"), shop)
        assert len(shop.runs) == 1
        await valkey.close()
