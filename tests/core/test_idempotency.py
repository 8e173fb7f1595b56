"""A request with an Idempotency-Key runs once, also when processes die."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from plaza.core import idempotency as module
from plaza.core.auth import ADMIN, API, USER, Actor
from plaza.core.clock import ManualClock
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


class FakeHandler:
    """A handler that records its runs and returns a given status."""

    def __init__(self, status: int = 201, headers: tuple[tuple[str, str], ...] = ()) -> None:
        self.status = status
        self.headers = (("content-type", "application/json"), *headers)
        self.runs: list[str] = []
        self.started, self.go = asyncio.Event(), asyncio.Event()
        self.go.set()

    async def __call__(self, operation: str) -> BufferedResponse:
        self.runs.append(operation)
        self.started.set()
        await self.go.wait()
        return BufferedResponse(self.status, self.headers, b'{"id": %d}' % len(self.runs))


async def start(idempotency: Idempotency, handler: FakeHandler) -> asyncio.Task[BufferedResponse]:
    """Start a request whose handler runs until `handler.go` is set."""
    handler.go.clear()
    task = asyncio.create_task(idempotency.run_once(keyed(), handler))
    await handler.started.wait()
    return task


@pytest.fixture
async def idempotency(valkey: Valkey) -> Idempotency:
    return Idempotency(valkey)


async def test_the_same_request_gets_the_stored_response(idempotency: Idempotency) -> None:
    handler = FakeHandler(headers=(("location", "/articles/1"),))
    first = await idempotency.run_once(keyed(), handler)
    again = await idempotency.run_once(keyed(), handler)
    assert len(handler.runs) == 1
    assert (first.status, first.body, first.replayed) == (201, b'{"id": 1}', False)
    assert (again.status, again.body, again.replayed) == (201, b'{"id": 1}', True)
    assert again.headers == (
        ("content-type", "application/json"),
        ("location", "/articles/1"),
        ("idempotency-replayed", "true"),
    )


async def test_exactly_one_of_a_hundred_equal_requests_runs(valkey: Valkey) -> None:
    handler = FakeHandler()
    handler.go.clear()
    processes = [Idempotency(valkey) for _ in range(4)]
    requests = [asyncio.ensure_future(processes[i % 4].run_once(keyed(), handler)) for i in range(100)]
    done, running = await asyncio.wait(requests, timeout=TIME_LIMIT_SECONDS, return_when=asyncio.FIRST_EXCEPTION)
    while len(done) < 99:
        more, running = await asyncio.wait(running, timeout=TIME_LIMIT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        done |= more
    assert Counter(type(task.exception()) for task in done) == {StillRunning: 99}
    handler.go.set()
    assert [(await task).replayed for task in running] == [False]
    again = await asyncio.gather(*(processes[i % 4].run_once(keyed(), handler) for i in range(100)))
    assert all(reply.replayed and reply.body == b'{"id": 1}' for reply in again)
    assert len(handler.runs) == 1


@pytest.mark.parametrize(
    "other",
    [keyed(b'{"title": "b"}'), keyed(b""), keyed(target="/posts"), keyed(target="/articles?x=1")],
    ids=["body", "no body", "path", "query"],
)
async def test_the_same_key_for_another_request_is_rejected(idempotency: Idempotency, other: IdempotentRequest) -> None:
    handler = FakeHandler()
    running = await start(idempotency, handler)
    for _ in ("while it runs", "after"):
        with pytest.raises(KeyReused) as error:
            await idempotency.run_once(other, handler)
        assert (error.value.status, error.value.extra["field"]) == (422, "Idempotency-Key")
        handler.go.set()
        await running
    assert len(handler.runs) == 1


async def test_the_method_is_part_of_the_request() -> None:
    assert (
        IdempotentRequest.from_request(ANA, "k", "POST", "/x", b"").request_hash
        != IdempotentRequest.from_request(ANA, "k", "PUT", "/x", b"").request_hash
    )
    assert (
        IdempotentRequest.from_request(ANA, "k", "POST", "/x", b"").request_hash
        != IdempotentRequest.from_request(ANA, "k", "POST", "/x\n", b"").request_hash
    )


async def test_a_second_request_during_the_first_gets_409(idempotency: Idempotency) -> None:
    handler = FakeHandler()
    running = await start(idempotency, handler)
    with pytest.raises(StillRunning) as error:
        await idempotency.run_once(keyed(), handler)
    assert (error.value.status, error.value.retry_after) == (409, 1.0)
    handler.go.set()
    assert (await running).status == 201


async def test_keys_of_different_callers_are_separate(idempotency: Idempotency) -> None:
    callers = [
        caller_id(Actor("ana", USER), "192.0.2.1"),
        caller_id(Actor("bob", USER), "192.0.2.1"),
        caller_id(API, "192.0.2.1"),
        caller_id(None, "192.0.2.1"),
        caller_id(None, "192.0.2.2"),
        caller_id(None, "actor ana"),
    ]
    handler = FakeHandler()
    replies = [await idempotency.run_once(keyed(caller=caller), handler) for caller in callers]
    assert not any(reply.replayed for reply in replies)
    assert len(set(handler.runs)) == len(callers)
    moved = caller_id(Actor("ana", ADMIN), "203.0.113.9")  # the same user from another address, with another role
    assert (await idempotency.run_once(keyed(caller=moved), handler)).replayed


@pytest.mark.parametrize("key", ["", "x" * 256, "a b", "é", "a\n", "\x7f", "\ud800"])
async def test_a_key_is_one_to_255_visible_characters(key: str) -> None:
    with pytest.raises(Invalid) as error:
        keyed(key=key)
    assert error.value.extra["field"] == "Idempotency-Key"


@pytest.mark.parametrize("key", ["x", "~" * 255, "{braces}:and:colons", '"quoted"', "*?[a-z]"])
async def test_any_visible_key_maps_to_a_declared_name(idempotency: Idempotency, redis_client: Any, key: str) -> None:
    handler = FakeHandler()
    await idempotency.run_once(keyed(key=key), handler)
    assert (await idempotency.run_once(keyed(key=key), handler)).replayed
    name = IDEMPOTENCY(keyed(key=key).key)
    assert await redis_client.exists(name) == 1
    found = CATALOGUE.match(name)
    assert found is not None
    assert found.key is IDEMPOTENCY


@pytest.mark.parametrize("status", [500, 502, 503, 400, 401, 413, 422, 429])
async def test_a_failure_that_did_nothing_is_not_stored(idempotency: Idempotency, status: int) -> None:
    handler = FakeHandler(status)
    assert (await idempotency.run_once(keyed(), handler)).status == status
    handler.status = 201
    assert (await idempotency.run_once(keyed(), handler)).status == 201
    assert len(handler.runs) == 2


@pytest.mark.parametrize("status", [200, 202, 403, 404, 409, 410])
async def test_a_final_response_is_stored(idempotency: Idempotency, status: int) -> None:
    handler = FakeHandler(status)
    assert (await idempotency.run_once(keyed(), handler)).status == status
    handler.status = 201
    assert (await idempotency.run_once(keyed(), handler)).status == status


@pytest.mark.parametrize("error", [NotFound("x"), Unavailable("x"), RuntimeError("x"), asyncio.CancelledError()])
async def test_a_handler_that_raises_releases_the_key(idempotency: Idempotency, error: BaseException) -> None:
    async def fails(operation: str) -> BufferedResponse:
        raise error

    with pytest.raises(type(error)):
        await idempotency.run_once(keyed(), fails)
    assert not (await idempotency.run_once(keyed(), FakeHandler())).replayed


async def test_a_cancelled_request_releases_the_key(idempotency: Idempotency) -> None:
    handler = FakeHandler()
    running = await start(idempotency, handler)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    handler.go.set()
    assert (await idempotency.run_once(keyed(), handler)).status == 201


async def test_a_response_is_stored_for_a_day_and_a_claim_for_seconds(
    idempotency: Idempotency, redis_client: Any
) -> None:
    handler = FakeHandler()
    running = await start(idempotency, handler)
    assert 0 < await redis_client.pttl(IDEMPOTENCY(keyed().key)) <= 10_000
    handler.go.set()
    await running
    assert 86_390_000 < await redis_client.pttl(IDEMPOTENCY(keyed().key)) <= 86_400_000


async def test_the_stored_response_has_no_secrets(idempotency: Idempotency, redis_client: Any) -> None:
    handler = FakeHandler(headers=(("Set-Cookie", "plaza=secret-cookie"), ("x-request-id", "r1"), ("ETag", '"1"')))
    request = keyed(b'{"card": "4111"}', key="the-key")
    await idempotency.run_once(request, handler)
    stored = await redis_client.get(IDEMPOTENCY(request.key))
    for secret in ("4111", "the-key", "secret-cookie", "ana", "r1"):
        assert secret not in stored
    again = await idempotency.run_once(request, handler)
    assert [name for name, _ in again.headers] == ["content-type", "etag", "idempotency-replayed"]


async def test_a_binary_body_is_replayed_unchanged(idempotency: Idempotency) -> None:
    async def binary(operation: str) -> BufferedResponse:
        return BufferedResponse(200, (), bytes(range(256)))

    await idempotency.run_once(keyed(), binary)
    assert (await idempotency.run_once(keyed(), binary)).body == bytes(range(256))


async def test_the_key_of_a_dead_process_is_free_after_the_lease(idempotency: Idempotency, valkey: Valkey) -> None:
    handler = FakeHandler()
    # A dead process leaves its claim.
    name, claim = IDEMPOTENCY(keyed().key), module._encode(module.RunningRequest(keyed().request_hash, "dead run"))
    await valkey.call("SET", name, claim, "PX", LEASE_MS)
    with pytest.raises(StillRunning):
        await idempotency.run_once(keyed(), handler)
    assert await valkey.call("PEXPIRE", name, 1)  # the lease ends now
    await eventually(lambda: is_deleted(valkey, name))
    assert not (await idempotency.run_once(keyed(), handler)).replayed


async def is_deleted(valkey: Valkey, name: str) -> bool:
    return not await valkey.call("EXISTS", name)


async def test_the_operation_id_is_per_request_and_day(valkey: Valkey, redis_client: Any, clock: ManualClock) -> None:
    idempotency = Idempotency(valkey, clock)
    handler = FakeHandler(status=503)  # unknown whether it was done: the key is free, and the operation id the same
    for request in (keyed(), keyed(), keyed(b'{"title": "b"}')):
        await idempotency.run_once(request, handler)
    first, again, other = handler.runs
    assert first == again != other
    assert 86_390_000 < await redis_client.pttl(IDEMPOTENCY_DAY(keyed().key)) <= 86_400_000
    await redis_client.delete(IDEMPOTENCY_DAY(keyed().key))  # as after a failover that lost it
    await idempotency.run_once(keyed(), handler)
    assert handler.runs[-1] == first
    clock.advance(days=1)
    await idempotency.run_once(keyed(), handler)
    assert handler.runs[-1] == first, "it is stored for a day, also beyond midnight"
    await redis_client.delete(IDEMPOTENCY_DAY(keyed().key))  # its day is over
    await idempotency.run_once(keyed(), handler)
    assert handler.runs[-1] not in (first, other)


async def test_a_long_handler_renews_its_claim(valkey: Valkey) -> None:
    idempotency = Idempotency(valkey, lease_ms=3_000)
    handler, name = FakeHandler(), IDEMPOTENCY(keyed().key)

    async def renewed() -> bool:
        return bool(await valkey.call("PTTL", name) > 2_500)

    running = await start(idempotency, handler)
    for _ in range(2):
        await valkey.call("PEXPIRE", name, 2_500)  # as if some time had passed
        await eventually(renewed)
        async with within_time_limit():
            with pytest.raises(StillRunning):
                await idempotency.run_once(keyed(), handler)
    handler.go.set()
    await running
    await asyncio.sleep(1.1)  # no later renewal shortens the stored response's day
    others = asyncio.all_tasks() - {asyncio.current_task()}
    assert not [task for task in others if "renew" in repr(task)]
    assert await valkey.call("PTTL", IDEMPOTENCY(keyed().key)) > 80_000_000
    assert (await idempotency.run_once(keyed(), handler)).replayed
    assert len(handler.runs) == 1


@pytest.mark.parametrize("status", [201, 500])
async def test_a_run_that_lost_its_lease_changes_no_stored_response(
    valkey: Valkey, idempotency: Idempotency, status: int
) -> None:
    slow, quick = FakeHandler(status), FakeHandler(202)
    lost = await start(idempotency, slow)
    await valkey.call("DEL", IDEMPOTENCY(keyed().key))  # as if it had stalled longer than its lease
    assert (await idempotency.run_once(keyed(), quick)).status == 202
    slow.go.set()
    assert (await lost).status == status  # its own response stays
    again = await idempotency.run_once(keyed(), quick)
    assert (again.status, again.replayed) == (202, True)


async def test_running_takes_two_round_trips_and_replaying_one(valkey: Valkey) -> None:
    idempotency = Idempotency(valkey)
    for expected in (2, 1):
        usage = RequestUsage()
        reset_token = REQUEST_USAGE.set(usage)
        await idempotency.run_once(keyed(), FakeHandler())
        REQUEST_USAGE.reset(reset_token)
        assert usage.trips == expected


async def test_without_valkey_nothing_runs_and_finished_work_is_answered() -> None:
    with running_server() as server:
        valkey = await connect_with_retries(server.url)
        idempotency, handler = Idempotency(valkey), FakeHandler()
        running = await start(idempotency, handler)
        server.stop()
        handler.go.set()
        assert (await running).status == 201
        with pytest.raises(Unavailable):
            await idempotency.run_once(keyed(key="k2"), handler)
        assert len(handler.runs) == 1
        await valkey.close()
