"""The queue of an endpoint: each event once, in order, within limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from plaza.core.functions import Functions
from plaza.core.valkey import Valkey
from plaza.webhooks.cloud_events import OutgoingEvent
from plaza.webhooks.delivery_queue import DeliveryQueue, QueuedEvent
from plaza.webhooks.keys import (
    WEBHOOK,
    WEBHOOK_ATTEMPTS,
    WEBHOOK_DELIVERIES,
    WEBHOOK_FAILING,
    WEBHOOK_QUEUE,
    WEBHOOK_STATE,
)
from plaza.webhooks.library import LIBRARY
from plaza.webhooks.model import SendOutcome

ID = "a" * 16
OK, FAILED = SendOutcome(200, "", 3), SendOutcome(500, "", 3)
STREAM = "events:social"


@pytest.fixture
async def functions(valkey: Valkey) -> Functions:
    limits = {"MAX_QUEUED": 5, "MAX_DELIVERIES": 3}
    functions = Functions(valkey, [replace(LIBRARY, constants=limits)])
    await functions.load()
    await functions.run("webhooks_create", [WEBHOOK(ID)], ID, "url", "https://example.org/", "types", "*")
    return functions


@pytest.fixture
def queue(functions: Functions) -> DeliveryQueue:
    return DeliveryQueue(functions)


def events(*numbers: int) -> list[OutgoingEvent]:
    return [OutgoingEvent(f"{n}-0", f"social-{n}-0", "post.liked", "1", False, b"{}") for n in numbers]


async def add(queue: DeliveryQueue, *numbers: int) -> tuple[int, int]:
    return await queue.add(ID, STREAM, f"{numbers[-1]}-0", events(*numbers))


async def waiting(queue: DeliveryQueue) -> list[QueuedEvent]:
    return await queue.waiting(ID, "0-0", 100)


async def entries(queue: DeliveryQueue) -> list[str]:
    return [event.entry for event in await waiting(queue)]


async def test_an_event_is_queued_once(queue: DeliveryQueue) -> None:
    assert await add(queue, 1, 2) == (2, 0)
    assert await add(queue, 1, 2) == (0, 0)  # by a worker that was killed before it stored its position
    assert await add(queue, 2, 10) == (1, 0)
    assert await add(queue, 9) == (0, 0)  # numbers, not texts
    assert await queue.add(ID, "events:shop", "1-0", events(1)) == (1, 0)
    assert await entries(queue) == ["1-0", "2-0", "10-0", "1-0"]


async def test_a_full_queue_drops_the_oldest_and_counts_them(queue: DeliveryQueue, redis_client: Any) -> None:
    await add(queue, 1, 2, 3)
    oldest = (await waiting(queue))[0].after_attempt(50).due_again(60)
    await queue.failed(ID, oldest, FAILED, 50, 0)
    assert await add(queue, 4, 5, 6, 7) == (4, 2)
    assert await entries(queue) == ["3-0", "4-0", "5-0", "6-0", "7-0"]
    assert await redis_client.hget(WEBHOOK_STATE(ID), "dropped") == "2"
    for key in (WEBHOOK_FAILING(ID), WEBHOOK_ATTEMPTS(ID), WEBHOOK_DELIVERIES(ID)):
        assert not await redis_client.exists(key)


async def test_a_disabled_or_removed_endpoint_queues_nothing(
    queue: DeliveryQueue, functions: Functions, redis_client: Any
) -> None:
    assert await functions.run("webhooks_disable", [WEBHOOK(ID)], ID, 5, "Gone.") == 1
    assert await add(queue, 1) == (0, 0)
    await functions.run("webhooks_remove", [WEBHOOK(ID)], ID)
    assert await add(queue, 1) == (0, 0)
    assert [key async for key in redis_client.scan_iter(match="webhook*")] == []


async def test_a_result_counts_once_and_only_while_its_event_waits(queue: DeliveryQueue, redis_client: Any) -> None:
    await add(queue, 1)
    (event,) = await waiting(queue)
    event = event.after_attempt(50)
    for _ in range(2):  # of two workers, one of which had stalled
        await queue.delivered(ID, event, OK, 50)
    await queue.failed(ID, event.due_again(60), FAILED, 50, 70)
    assert await redis_client.hgetall(WEBHOOK_STATE(ID)) == {"delivered": "1", "last_delivered_at": "50"}
    assert await redis_client.zcard(WEBHOOK_FAILING(ID)) == 0


async def test_attempts_survive_the_worker(queue: DeliveryQueue) -> None:
    await add(queue, 1)
    (event,) = await waiting(queue)
    for now in (50, 80):
        event = event.after_attempt(now)
        await queue.failed(ID, event.due_again(now + 10), FAILED, now, 1000)
    (found,) = await waiting(queue)
    assert (found.attempts, found.first_attempt_at, found.due_ms) == (2, 50, 90)
    assert await queue.failures(ID) == (2, 50, 1000)


async def test_the_oldest_records_go_but_not_those_of_waiting_events(queue: DeliveryQueue, redis_client: Any) -> None:
    await add(queue, 0)
    failing = (await waiting(queue))[0].after_attempt(1).due_again(5)
    await queue.failed(ID, failing, FAILED, 1, 0)
    for number in range(1, 7):
        await add(queue, number)
        await queue.delivered(ID, (await waiting(queue))[-1].after_attempt(number), OK, 10 + number)
    listed = await redis_client.zrange(WEBHOOK_ATTEMPTS(ID), 0, -1, withscores=True)
    assert failing.delivery in dict(listed)
    assert len(listed) == 4
    assert set(await redis_client.hkeys(WEBHOOK_DELIVERIES(ID))) == {delivery for delivery, _ in listed}


async def test_records_name_no_user(queue: DeliveryQueue, redis_client: Any) -> None:
    event = OutgoingEvent("1-0", "social-1-0", "user.followed", "ana", False, b'{"data": {"follower": "ana"}}')
    await queue.add(ID, STREAM, "1-0", [event])
    await queue.delivered(ID, (await waiting(queue))[0].after_attempt(1), OK, 1)
    assert "ana" not in str(await redis_client.hgetall(WEBHOOK_DELIVERIES(ID)))
    assert await redis_client.xlen(WEBHOOK_QUEUE(ID)) == 0
