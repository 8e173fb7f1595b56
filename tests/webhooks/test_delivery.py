"""Deliveries by a worker: complete, signed, in order per subject, retried, and independent of each other."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from standardwebhooks import Webhook as Verifier

from plaza.app import Plaza
from plaza.core.event_streams import all_streams, stream_of
from plaza.webhooks import endpoint_health, model
from plaza.webhooks.deliveries import Deliveries
from plaza.webhooks.keys import WEBHOOK, WEBHOOK_FAILING, WEBHOOK_QUEUE, WEBHOOK_STATE
from plaza.webhooks.model import CONCURRENCY, GIVE_UP_MS, KEPT_MS, MAX_FAILURES, MAX_RETRY_MS, parse_retry_after
from tests.http_servers import client_of
from tests.waiting import eventually
from tests.webhooks.conftest import WebhookAdmin, running_worker
from tests.webhooks.receiver import ReceivedWebhook, Receiver, answer, close_without_answer, hang, receiving


@pytest.fixture
async def worker(plaza: Plaza) -> AsyncIterator[None]:
    async with running_worker(plaza):
        yield


async def emit(redis: Any, type: str = "post.liked", subject: str = "1", data: str = "{}", **fields: str) -> str:
    """Add an event as a domain does."""
    entry = {"type": type, "subject": subject, "time": "1700000000000", "data": data, **fields}
    return str(await redis.xadd(stream_of("social", subject).key, entry))


async def emit_many(redis: Any, subjects: list[str]) -> None:
    for number, subject in enumerate(subjects):
        await emit(redis, subject=subject, data=f'{{"number": {number}}}')


def numbers_by_subject(receiver: Receiver) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for event in receiver.events():
        found.setdefault(event["subject"], []).append(event["data"]["number"])
    return found


pytestmark = pytest.mark.usefixtures("worker")


async def test_an_event_arrives_signed_as_a_cloud_event(
    admin: WebhookAdmin, receiver: Receiver, redis_client: Any
) -> None:
    created = await admin.create(receiver.url, "post.*")
    entry = await emit(redis_client, "post.liked", "4711", '{"username": "ana"}')
    await eventually(lambda: receiver.requests)
    (request,) = receiver.requests
    assert request.headers["content-type"] == "application/cloudevents+json; charset=utf-8"
    assert Verifier(created["secret"]).verify(request.body, request.headers) == {
        "specversion": "1.0",
        "id": f"social-{entry}",
        "source": "http://127.0.0.1:8000",
        "type": "post.liked",
        "subject": "4711",
        "time": "2023-11-14T22:13:20Z",
        "datacontenttype": "application/json",
        "data": {"username": "ana"},
    }


async def test_an_endpoint_gets_what_it_asked_for(admin: WebhookAdmin, receiver: Receiver, redis_client: Any) -> None:
    async with receiving() as imports, receiving() as everything:
        await admin.create(receiver.url, "post.*", "order.placed")
        await admin.create(imports.url, "post.*", include_imports=True)
        await admin.create(everything.url, "*")
        await emit(redis_client, "post.liked", "1")
        await emit(redis_client, "postscript.added", "2")
        await emit(redis_client, "order.placed", "3")
        await emit(redis_client, "post.liked", "4", origin="import")
        await emit(redis_client, "post.liked", "5", data="no JSON")
        await eventually(lambda: len(receiver.requests) == 3 and len(everything.requests) == 4)
        await eventually(lambda: len(imports.requests) == 3)
        assert sorted(receiver.subjects()) == ["1", "3", "5"]
        assert sorted(imports.subjects()) == ["1", "4", "5"]
        assert sorted(everything.subjects()) == ["1", "2", "3", "5"]


async def test_odd_entries_of_other_services_stop_nothing(
    admin: WebhookAdmin, receiver: Receiver, redis_client: Any
) -> None:
    await admin.create(receiver.url)
    stream = stream_of("social", "1").key
    odd: list[dict[Any, Any]] = [
        {"some": "thing"},
        {"type": ""},
        {"type": "post.liked\r\nx: y", "subject": "1"},
        {"type": b"\xff.\xfe", "subject": "1"},
        {"type": "post.liked", "subject": b"\xff\xfe", "data": b'"\xff"', "time": "soon"},
        {"type": "post.liked", "subject": "x" * 10_000, "data": "[" * 100_000, "id": "a\r\nhost: b"},
        {"type": "post.liked", "subject": "3", "data": '"' + "y" * 100_000 + '"', "time": "9" * 400},
    ]
    for fields in odd:
        await redis_client.xadd(stream, fields)
    await emit(redis_client, subject="last")
    await eventually(lambda: len(receiver.requests) == 4)
    assert sorted(event["subject"] for event in receiver.events()) == sorted(["\ufffd\ufffd", "x" * 300, "3", "last"])
    for request in receiver.requests:
        assert request.headers["webhook-id"].startswith("social-")


async def test_a_damaged_queue_delays_no_other_endpoint(
    admin: WebhookAdmin, receiver: Receiver, redis_client: Any
) -> None:
    broken = (await admin.create(receiver.url))["id"]
    await redis_client.set(WEBHOOK_QUEUE(broken), "damage")
    async with receiving() as other:
        await admin.create(other.url)
        await emit(redis_client)
        await eventually(lambda: other.requests)
    assert receiver.requests == []


async def test_events_before_an_endpoint_are_not_sent(
    admin: WebhookAdmin, receiver: Receiver, redis_client: Any
) -> None:
    await redis_client.xadd(stream_of("social", "old").key, {"type": "post.liked", "subject": "old"}, id="1000-0")
    await admin.create(receiver.url)
    await emit(redis_client, subject="new")
    await eventually(lambda: receiver.requests)
    assert receiver.subjects() == ["new"]


async def test_each_subject_is_in_order_and_subjects_go_in_parallel(
    admin: WebhookAdmin, receiver: Receiver, redis_client: Any
) -> None:
    rng = random.Random(7)

    async def slow(request: ReceivedWebhook, writer: asyncio.StreamWriter) -> None:
        for _ in range(rng.randrange(20)):
            await asyncio.sleep(0)
        # Some requests fail, and come again.
        await answer(500 if rng.random() < 0.1 else 200)(request, writer)

    receiver.respond = slow
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "FIRST_RETRY_MS", 10)
        await admin.create(receiver.url)
        subjects = [rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(300)]
        await emit_many(redis_client, subjects)
        expected = {subject: [n for n, each in enumerate(subjects) if each == subject] for subject in set(subjects)}

        def in_order() -> bool:
            found = numbers_by_subject(receiver)
            return {subject: list(dict.fromkeys(numbers)) for subject, numbers in found.items()} == expected

        await eventually(in_order)
    for numbers in numbers_by_subject(receiver).values():
        assert numbers == sorted(numbers)
    assert 1 < receiver.most_open_requests <= CONCURRENCY


async def test_a_failed_event_is_retried_and_shown(admin: WebhookAdmin, receiver: Receiver, redis_client: Any) -> None:
    id = (await admin.create(receiver.url))["id"]
    receiver.respond = answer(503, b"", "retry-after: 7200")
    await emit(redis_client)

    async def deliveries() -> Any:
        return (await admin.call("GET", f"/{id}/deliveries"))["deliveries"]

    (failed,) = await eventually(deliveries)
    assert (failed["status"], failed["attempts"], failed["response_code"]) == ("retrying", 1, 503)
    assert failed["next_attempt_at"] == failed["last_attempt_at"] + 7_200_000, "as the endpoint asked"
    shown = await admin.call("GET", f"/{id}")
    assert (shown["waiting"], shown["last_error"]) == (1, "HTTP 503")
    assert shown["failing_since"]
    assert shown["next_attempt_at"] == failed["next_attempt_at"]
    async with receiving() as other:
        await admin.create(other.url)
        await emit(redis_client, subject="another")
        await eventually(lambda: other.requests)
    assert len(receiver.requests) == 1, "the pause holds for the whole endpoint"
    receiver.respond = answer(200)
    assert await admin.call("POST", f"/{id}/deliveries/{failed['id']}/retry", 202) == {"id": failed["id"]}
    await eventually(lambda: len(receiver.requests) == 3)

    async def are_delivered() -> bool:
        return [each["status"] for each in await deliveries()] == ["delivered", "delivered"]

    await eventually(are_delivered)
    delivered = next(each for each in await deliveries() if each["id"] == failed["id"])
    assert (delivered["attempts"], delivered["next_attempt_at"]) == (2, None)
    shown = await admin.call("GET", f"/{id}")
    assert (shown["waiting"], shown["delivered"], shown["failing_since"], shown["last_error"]) == (0, 2, None, None)
    # The same message: a receiver that remembers ids handles it once.
    ids = [request.headers["webhook-id"] for request in receiver.requests]
    assert ids.count(ids[0]) == 2


def test_retry_after_is_seconds_or_a_date_and_bounded() -> None:
    now = datetime(2026, 11, 17, 12, tzinfo=UTC)
    for value, wait_ms in (
        ("120", 120_000),
        ("9" * 40, MAX_RETRY_MS),
        ("Tue, 17 Nov 2026 12:01:00 GMT", 60_000),
        ("Tue, 17 Nov 2026 11:00:00 GMT", 0),
        ("Tue, 17 Nov 2099 12:01:00 GMT", MAX_RETRY_MS),
        ("Tue, 17 Nov 2026 12:01:00", 0),
        ("-5", 0),
        ("soon", 0),
    ):
        assert parse_retry_after(value, now) == wait_ms, value


async def test_a_delivered_event_can_be_sent_again_while_it_is_stored(
    admin: WebhookAdmin, receiver: Receiver, redis_client: Any
) -> None:
    id = (await admin.create(receiver.url))["id"]
    await emit(redis_client)

    async def delivered() -> Any:
        return (await admin.call("GET", f"/{id}/deliveries"))["deliveries"]

    (first,) = await eventually(delivered)
    again = await admin.call("POST", f"/{id}/deliveries/{first['id']}/retry", 202)
    assert again["id"] != first["id"]
    await eventually(lambda: len(receiver.requests) == 2)
    assert receiver.requests[0].body == receiver.requests[1].body
    assert receiver.requests[0].headers["webhook-id"] == receiver.requests[1].headers["webhook-id"]
    for stream in all_streams("social"):
        await redis_client.xtrim(stream.key, maxlen=0)
    await admin.call("POST", f"/{id}/deliveries/{first['id']}/retry", 410)
    await admin.call("POST", f"/{id}/deliveries/1-1/retry", 404)


async def test_bad_endpoints_delay_no_other(admin: WebhookAdmin, receiver: Receiver, redis_client: Any) -> None:
    async with receiving(respond=hang) as hanging, receiving(respond=close_without_answer) as closing:
        for url in (hanging.url, closing.url, "http://127.0.0.1:9/", "http://does-not-exist.invalid/", receiver.url):
            await admin.create(url)
        await emit_many(redis_client, [str(n % 50) for n in range(200)])
        await eventually(lambda: len(receiver.requests) == 200)
        assert hanging.most_open_requests <= CONCURRENCY


async def test_410_disables_at_once(admin: WebhookAdmin, receiver: Receiver, redis_client: Any) -> None:
    id = (await admin.create(receiver.url))["id"]
    receiver.respond = answer(410)
    await emit(redis_client)

    async def disabled() -> Any:
        shown = await admin.call("GET", f"/{id}")
        return not shown["enabled"] and shown

    shown = await eventually(disabled)
    assert shown["disabled_reason"] == "The endpoint answered 410 Gone."
    await emit(redis_client, subject="while disabled")
    receiver.respond = answer(200)
    await admin.call("PATCH", f"/{id}", enabled=True)
    await emit(redis_client, subject="after")
    await eventually(lambda: len(receiver.requests) == 3)
    assert receiver.subjects() == ["1", "1", "after"]  # what waited is sent, what happened meanwhile is not


async def test_three_days_of_failures_disable_an_endpoint(
    admin: WebhookAdmin, receiver: Receiver, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert GIVE_UP_MS == 3 * 86_400_000
    monkeypatch.setattr(model, "FIRST_RETRY_MS", 1)
    monkeypatch.setattr(endpoint_health, "GIVE_UP_MS", 50)
    receiver.respond = answer(500)
    id = (await admin.create(receiver.url))["id"]
    await emit(redis_client)

    async def disabled() -> Any:
        shown = await admin.call("GET", f"/{id}")
        return not shown["enabled"] and shown

    shown = await eventually(disabled)
    assert shown["disabled_reason"] == "An event of the type post.liked failed for three days: HTTP 500"
    assert shown["waiting"] == 1


async def test_an_endpoint_that_is_down_gets_one_request_at_a_time(
    admin: WebhookAdmin, receiver: Receiver, redis_client: Any
) -> None:
    receiver.respond = answer(500)
    id = (await admin.create(receiver.url))["id"]
    await emit_many(redis_client, [str(n) for n in range(3 * CONCURRENCY)])

    async def is_down() -> bool:
        state = await redis_client.hgetall(WEBHOOK_STATE(id))
        return int(state.get("failures", 0)) >= MAX_FAILURES and "next_at" in state

    await eventually(is_down)
    await eventually(lambda: receiver.open_requests == 0)
    assert len(receiver.requests) < 2 * CONCURRENCY
    # It works again: one request finds out, then everything follows.
    receiver.respond = answer(200)
    (delivery, *_) = await redis_client.zrange(WEBHOOK_FAILING(id), 0, 0)
    await admin.call("POST", f"/{id}/deliveries/{delivery}/retry", 202)

    async def is_empty() -> bool:
        return not await redis_client.xlen(WEBHOOK_QUEUE(id))

    await eventually(is_empty)
    assert sorted({int(subject) for subject in receiver.subjects()}) == list(range(3 * CONCURRENCY))


async def test_a_rotation_and_a_changed_url_apply_at_once(
    admin: WebhookAdmin, receiver: Receiver, redis_client: Any
) -> None:
    created = await admin.create(receiver.url)
    await emit(redis_client, subject="1")
    await eventually(lambda: receiver.requests)
    rotated = await admin.call("POST", f"/{created['id']}/rotate")
    async with receiving() as other:
        await admin.call("PATCH", f"/{created['id']}", url=other.url)
        await emit(redis_client, subject="2")
        await eventually(lambda: other.requests)
        Verifier(rotated["secret"]).verify(other.requests[0].body, other.requests[0].headers)
    assert receiver.subjects() == ["1"]


@pytest.mark.parametrize("place", ["cluster"], indirect=True)
async def test_a_change_after_a_failover_that_lost_the_one_before_applies(
    admin: WebhookAdmin, receiver: Receiver, redis_client: Any
) -> None:
    """The endpoint's node goes back; the worker has read the revision that is lost."""
    created = await admin.create(receiver.url)
    fields = await redis_client.hgetall(WEBHOOK(created["id"]))
    for subject in ("1", "2"):
        async with receiving() as other:
            await admin.call("PATCH", f"/{created['id']}", url=other.url)
            await emit(redis_client, subject=subject)
            await eventually(lambda: other.requests)
            assert other.subjects() == [subject]
        await redis_client.hset(WEBHOOK(created["id"]), mapping=fields)


async def test_a_removed_endpoint_gets_nothing_and_leaves_nothing(
    admin: WebhookAdmin, receiver: Receiver, redis_client: Any
) -> None:
    async with receiving() as other:
        id = (await admin.create(receiver.url))["id"]
        await admin.create(other.url)
        await emit(redis_client, subject="1")
        await eventually(lambda: receiver.requests)
        await admin.call("DELETE", f"/{id}", 204)
        await emit(redis_client, subject="2")
        await eventually(lambda: len(other.requests) == 2)
        assert receiver.subjects() == ["1"]
        assert [key async for key in redis_client.scan_iter(match=f"*{id}*")] == []


async def test_old_deliveries_and_old_events_are_removed(
    plaza: Plaza, admin: WebhookAdmin, receiver: Receiver, redis_client: Any
) -> None:
    id = (await admin.create(receiver.url))["id"]
    await emit(redis_client)

    async def delivered() -> Any:
        return (await admin.call("GET", f"/{id}/deliveries"))["deliveries"]

    await eventually(delivered)
    await admin.call("PATCH", f"/{id}", enabled=False)
    old = plaza.core.clock.now_ms() - KEPT_MS - 1
    key = WEBHOOK_QUEUE(id)
    await redis_client.hset(WEBHOOK(id), mapping={"previous_secret": "x", "previous_until": old})
    await redis_client.execute_command("XADD", key, "*", "event", "e", "type", "t", "subject", "s", "body", "{}")
    assert await plaza.get(Deliveries).expire() == 0
    (delivery,) = await delivered()
    await redis_client.zadd(f"{key.removesuffix(':queue')}:attempts", {delivery["id"]: old})
    await redis_client.delete(key)
    await redis_client.execute_command("XADD", key, f"{old}-1", "event", "e", "type", "t", "subject", "s", "body", "{}")
    assert await plaza.get(Deliveries).expire() == 2
    assert await delivered() == []
    shown = await admin.call("GET", f"/{id}")
    assert (shown["waiting"], shown["dropped"]) == (0, 1)
    assert not await redis_client.hexists(WEBHOOK(id), "previous_secret")


async def test_what_a_user_does_arrives(
    plaza: Plaza, admin: WebhookAdmin, receiver: Receiver, http: httpx.AsyncClient
) -> None:
    await admin.create(receiver.url, "user.followed")
    for name in ("ana", "ben"):
        body = {"username": name, "password": "correct horse battery"}
        assert (await http.post("/auth/register", json=body)).status_code == 201
    token = plaza.core.auth.issue("ana", "user")
    async with client_of(plaza.app) as ana:
        response = await ana.post("/users/ben/follow", headers={"authorization": f"Bearer {token}"})
        assert response.status_code == 200
    await eventually(lambda: receiver.requests)
    (event,) = receiver.events()
    assert (event["type"], event["data"]) == ("user.followed", {"follower": "ana", "followed": "ben"})
