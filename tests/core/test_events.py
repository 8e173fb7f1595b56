"""Events: every group handles each event, whatever happens to its consumers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, ClassVar

import pytest
import redis
import structlog

from plaza.core import metrics, stream_consumer
from plaza.core.errors import Unavailable
from plaza.core.event_streams import EventStream, all_streams, stream_of
from plaza.core.events import EVENTS, Consumer, Event, EventData, Events
from plaza.core.functions import Functions
from plaza.core.stream_consumer import StreamConsumer
from plaza.core.stream_watch import StreamWatch
from plaza.core.valkey import Valkey
from tests.timeouts import within_time_limit
from tests.waiting import eventually

OWNER = "ana"


def news() -> EventStream:
    """Return the stream with the events of the owner, in the layout of the running test."""
    return stream_of("news", OWNER)


@pytest.fixture
async def functions(valkey: Valkey) -> Functions:
    functions = Functions(valkey, [EVENTS])
    await functions.load()
    return functions


@pytest.fixture
def events(functions: Functions) -> Events:
    return Events(functions)


class RecordingHandler:
    """A handler that records the events it gets; `before` runs first and can fail."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.tries: list[int] = []
        self.before: Callable[[Event], Awaitable[None]] | None = None

    async def __call__(self, event: Event) -> None:
        if self.before is not None:
            await self.before(event)
        self.numbers.append(int(event.fields["n"]))
        self.tries.append(event.tries)

    async def until(self, count: int) -> None:
        await eventually(lambda: len(self.numbers) >= count)


@pytest.fixture
def handler() -> RecordingHandler:
    return RecordingHandler()


@contextlib.asynccontextmanager
async def reading(
    events: Events, consumer: Consumer, name: str = "one", streams: Sequence[EventStream] = ()
) -> AsyncIterator[asyncio.Task[None]]:
    functions, streams = events._functions, streams or [news()]
    watch = StreamWatch(functions.valkey, streams)
    watching = asyncio.create_task(watch.run())
    task = asyncio.create_task(StreamConsumer(functions, events, consumer, streams, watch, name).run())
    try:
        yield task
    finally:
        for started in (task, watching):
            started.cancel()
        await asyncio.wait([task, watching])


async def emit_numbers(events: Events, count: int, first: int = 0) -> None:
    await asyncio.gather(*(events.emit("news", OWNER, n=n) for n in range(first, first + count)))


def number(metric: str, labels: dict[str, str]) -> float:
    return metrics.REGISTRY.get_sample_value(metric, labels) or 0.0


async def pending_count(redis_client: Any, group: str = "g") -> int:
    return int((await redis_client.xpending(news().key, group))["pending"])


async def test_every_group_handles_every_event_in_order(events: Events, redis_client: Any) -> None:
    one, two = RecordingHandler(), RecordingHandler()
    await emit_numbers(events, 50)
    async with reading(events, Consumer("news", "g", one)), reading(events, Consumer("news", "h", two)):
        await emit_numbers(events, 50, first=50)
        await asyncio.gather(one.until(100), two.until(100))
    assert one.numbers == two.numbers == list(range(100))
    assert await pending_count(redis_client, "g") == await pending_count(redis_client, "h") == 0


async def test_consumers_of_a_group_share_its_events(events: Events) -> None:
    one, two = RecordingHandler(), RecordingHandler()
    pair = Consumer("news", "g", one, batch_size=1), Consumer("news", "g", two, batch_size=1)
    async with reading(events, pair[0], "one"), reading(events, pair[1], "two"):
        await emit_numbers(events, 40)
        await eventually(lambda: len(one.numbers) + len(two.numbers) >= 40)
    assert sorted(one.numbers + two.numbers) == list(range(40))


async def test_an_event_has_its_fields_and_is_counted(events: Events, handler: RecordingHandler) -> None:
    got: list[Event] = []
    labels = {"stream": "news", "group": "g", "result": "done"}
    before = number("plaza_events_handled_total", labels)

    async def record(event: Event) -> None:
        got.append(event)

    handler.before = record
    async with reading(events, Consumer("news", "g", handler)):
        made = await events.emit("news", OWNER, n=7, who="ana", what="héllo")
        await eventually(lambda: number("plaza_events_handled_total", labels) == before + 1)
    assert got == [Event("news", made, {"n": "7", "who": "ana", "what": "héllo"}, 1, news().shard)]


async def test_a_batch_handler_gets_events_together_and_a_bad_one_alone(events: Events, redis_client: Any) -> None:
    batches: list[list[int]] = []

    async def handle(batch: Sequence[Event]) -> None:
        numbers = [int(event.fields["n"]) for event in batch]
        if 5 in numbers:
            raise ValueError("five")
        batches.append(numbers)

    await emit_numbers(events, 20)
    consumer = Consumer("news", "g", handle_batch=handle, batch_size=10, max_tries=1)
    async with reading(events, consumer):
        await eventually(lambda: sum(map(len, batches)) == 19)
        await eventually(lambda: redis_client.xlen(news().dead_key))
    assert batches == [[0], [1], [2], [3], [4], [6], [7], [8], [9], list(range(10, 20))]
    assert await pending_count(redis_client) == 0


async def test_a_batch_has_events_of_all_shards_and_each_keeps_its_place(events: Events, redis_client: Any) -> None:
    """Ids of entries in different shards can be equal: what happens to one event must not happen to another."""
    streams = all_streams("news")
    batches: list[list[int]] = []

    async def handle(batch: Sequence[Event]) -> None:
        numbers = [int(event.fields["n"]) for event in batch]
        if 5 in numbers:
            raise ValueError("five")
        batches.append(numbers)

    for n in range(40):
        stream = streams[n % len(streams)]
        await redis_client.xadd(stream.key, {"n": n}, id=f"1-{1 + n // len(streams)}")
    async with reading(events, Consumer("news", "g", handle_batch=handle, max_tries=1), streams=streams):
        await eventually(lambda: sum(map(len, batches)) == 39)
        dead = await eventually(lambda: redis_client.xrange(streams[5 % len(streams)].dead_key))
        assert [fields["n"] for _, fields in dead] == ["5"]
        for first in (40, 80):
            for n in range(first, first + 40):
                await redis_client.xadd(streams[n % len(streams)].key, {"n": n})
            await eventually(lambda: sum(map(len, batches)) == first + 39)  # noqa: B023
    assert sorted(n for batch in batches for n in batch) == [n for n in range(120) if n != 5]
    for stream in streams:
        assert (await redis_client.xpending(stream.key, "g"))["pending"] == 0
        in_shard = [n for batch in batches for n in batch if streams[n % len(streams)] == stream]
        assert in_shard == sorted(in_shard)


async def test_a_consumer_of_some_types_acknowledges_the_others(events: Events, redis_client: Any) -> None:
    handled: list[str] = []

    async def handle(event: Event) -> None:
        handled.append(event.type)

    for kind in ("post.liked", "user.followed", "comment.created", "comment.deleted", "postal.sent"):
        await events.emit("news", OWNER, type=kind)
    async with reading(events, Consumer("news", "g", handle, types=("post.*", "comment.created"))):
        await eventually(lambda: len(handled) == 2)
        await eventually(lambda: _all_handled(redis_client))
    assert handled == ["post.liked", "comment.created"]


async def _all_handled(redis_client: Any) -> bool:
    (group,) = await redis_client.xinfo_groups(news().key)
    return bool(group["pending"] == 0 and group["lag"] == 0)


class NewsSent(EventData):
    """An event of these tests."""

    type: ClassVar[str] = "news.sent"
    subject: ClassVar[str] = "post"
    post: str
    author: str | None = None


async def test_an_event_that_lacks_what_its_type_declares_is_skipped_once(
    events: Events, handler: RecordingHandler, redis_client: Any
) -> None:
    labels = {"stream": "news", "group": "g", "result": "skipped"}
    before = number("plaza_events_handled_total", labels)
    incomplete = ("{}", '{"post": 5}', "[]", "no JSON", '{"post": "a", "author": 1}')
    complete = ('{"post": "a", "added": 1}', '{"post": "b", "author": null}')
    for n, data in enumerate((complete[0], *incomplete, complete[1])):
        await events.emit("news", OWNER, n=n, type=NewsSent.type, data=data)
    async with reading(events, Consumer("news", "g", handler, declared=[NewsSent])):
        await handler.until(2)
        await eventually(lambda: _all_handled(redis_client))
    assert handler.numbers == [0, 6]
    assert number("plaza_events_handled_total", labels) == before + len(incomplete)


async def test_a_new_group_can_start_with_the_next_event(events: Events, handler: RecordingHandler) -> None:
    await emit_numbers(events, 5)
    await events.ensure_group(news(), "g", from_start=False)
    async with reading(events, Consumer("news", "g", handler, from_start=False)):
        await emit_numbers(events, 1, first=5)
        await handler.until(1)
    assert handler.numbers == [5]


async def test_a_slow_batch_is_acknowledged_meanwhile(
    events: Events, handler: RecordingHandler, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the process dies, only what was handled last is handled again."""
    monkeypatch.setattr(stream_consumer, "ACK_SECONDS", 0.01)
    stuck = asyncio.Event()

    async def stop_at_three(event: Event) -> None:
        if event.fields["n"] == "3":
            await stuck.wait()

    handler.before = stop_at_three
    await emit_numbers(events, 5)
    async with reading(events, Consumer("news", "g", handler)):
        await eventually(lambda: _has_pending(redis_client, 2))
        stuck.set()
        await handler.until(5)


async def _has_pending(redis_client: Any, count: int) -> bool:
    with contextlib.suppress(redis.ResponseError):  # no group yet
        return await pending_count(redis_client) == count
    return False


async def test_a_failed_event_is_retried_and_does_not_block_others(
    events: Events, handler: RecordingHandler, redis_client: Any
) -> None:
    async def fail_at_first(event: Event) -> None:
        if event.fields["n"] == "1" and event.tries < 3:
            raise ValueError("not yet")

    handler.before = fail_at_first
    async with reading(events, Consumer("news", "g", handler, retry_seconds=0.05)):
        await emit_numbers(events, 4)
        await handler.until(4)
    assert handler.numbers == [0, 2, 3, 1]
    assert handler.tries == [1, 1, 1, 3]
    assert await pending_count(redis_client) == 0


async def test_an_event_that_keeps_failing_is_moved_to_the_dead_events(
    events: Events, handler: RecordingHandler, redis_client: Any
) -> None:
    async def fail(event: Event) -> None:
        if event.fields["n"] == "0":
            raise ValueError("no such post")

    handler.before = fail
    labels = {"stream": "news", "group": "g"}
    dead_before = number("plaza_events_dead_total", labels)
    async with reading(events, Consumer("news", "g", handler, max_tries=3, retry_seconds=0.02)):
        await emit_numbers(events, 2)
        await eventually(lambda: number("plaza_events_dead_total", labels) == dead_before + 1)
    (dead,) = await redis_client.xrange(news().dead_key)
    assert dead[1].pop("dead_id")
    assert dead[1] == {"n": "0", "dead_group": "g", "dead_tries": "3", "dead_reason": "ValueError: no such post"}
    assert await pending_count(redis_client) == 0
    assert handler.numbers == [1]


async def test_a_dead_event_can_be_revived(events: Events, handler: RecordingHandler, redis_client: Any) -> None:
    async def fail(_: Event) -> None:
        raise ValueError("no")

    handler.before = fail
    async with reading(events, Consumer("news", "g", handler, max_tries=1)):
        await emit_numbers(events, 1)
        dead = await eventually(lambda: redis_client.xrange(news().dead_key))
        handler.before = None
        assert await events.revive(news(), dead[0][0])
        await handler.until(1)
    assert handler.numbers == [0]
    assert await redis_client.xlen(news().dead_key) == 0
    assert await events.revive(news(), dead[0][0]) is None


async def test_a_handler_that_exceeds_its_timeout_is_cancelled_and_retried(
    events: Events, handler: RecordingHandler
) -> None:
    async def hang_at_first(event: Event) -> None:
        if event.tries == 1:
            await asyncio.sleep(60)

    handler.before = hang_at_first
    async with reading(events, Consumer("news", "g", handler, timeout_seconds=0.05, retry_seconds=0.02)):
        await emit_numbers(events, 1)
        await handler.until(1)
    assert handler.tries == [2]


async def test_events_wait_while_a_service_is_unavailable(
    events: Events, handler: RecordingHandler, redis_client: Any
) -> None:
    outages = 6

    async def away(_: Event) -> None:
        nonlocal outages
        outages -= 1
        if outages >= 0:
            raise Unavailable("The database is unavailable.")

    handler.before = away
    consumer = Consumer("news", "g", handler, max_tries=2, retry_seconds=0.01, stale_seconds=3)
    with structlog.testing.capture_logs() as logs:
        async with reading(events, consumer):
            await emit_numbers(events, 3)
            await handler.until(3)
    assert sorted(handler.numbers) == [0, 1, 2]
    assert not await redis_client.exists(news().dead_key)
    assert [line["event"] for line in logs].count("event_handler_unavailable") == 1


async def test_events_of_a_dead_consumer_are_claimed(
    events: Events, handler: RecordingHandler, redis_client: Any
) -> None:
    await events.ensure_group(news(), "g")
    await emit_numbers(events, 3)
    await redis_client.xreadgroup("g", "dead consumer", {news().key: ">"}, count=2)
    async with reading(events, Consumer("news", "g", handler, stale_seconds=0.3)):
        await handler.until(3)
    assert dict(zip(handler.numbers, handler.tries, strict=True)) == {2: 1, 0: 2, 1: 2}
    assert await pending_count(redis_client) == 0


async def test_an_event_that_kills_its_consumers_is_moved_to_the_dead_events(
    events: Events, handler: RecordingHandler, redis_client: Any
) -> None:
    await events.ensure_group(news(), "g")
    await emit_numbers(events, 1)
    ((_, ((event_id, _),)),) = _pairs(await redis_client.xreadgroup("g", "dead 1", {news().key: ">"}))
    await redis_client.xclaim(news().key, "g", "dead 2", 0, [event_id])
    consumer = Consumer("news", "g", handler, max_tries=2, stale_seconds=0.1)
    async with reading(events, consumer):
        dead = await eventually(lambda: redis_client.xrange(news().dead_key))
    assert dead[0][1]["dead_reason"] == "Its consumer died or stalled every time."
    assert handler.numbers == []


async def test_an_event_in_progress_is_not_claimed_by_another_consumer(events: Events, redis_client: Any) -> None:
    slow, other = RecordingHandler(), RecordingHandler()

    started = asyncio.Event()

    async def handle_slowly(_: Event) -> None:
        started.set()
        await asyncio.sleep(2.2)

    slow.before = handle_slowly
    async with reading(events, Consumer("news", "g", slow, stale_seconds=2.0), "slow"):
        await emit_numbers(events, 1)
        await started.wait()
        async with reading(events, Consumer("news", "g", other, stale_seconds=2.0), "other"):
            await slow.until(1)
    assert slow.numbers == [0]
    assert other.numbers == []


async def test_a_consumer_that_stops_releases_its_events_at_once(events: Events, redis_client: Any) -> None:
    first, second = RecordingHandler(), RecordingHandler()
    started = asyncio.Event()

    async def hang(_: Event) -> None:
        started.set()
        await asyncio.sleep(60)

    first.before = hang
    await emit_numbers(events, 5)
    async with within_time_limit():
        async with reading(events, Consumer("news", "g", first), "first"):
            await started.wait()
        async with reading(events, Consumer("news", "g", second), "second"):
            await second.until(5)  # long before stale_seconds
    assert second.numbers == [0, 1, 2, 3, 4]
    assert second.tries == [1, 1, 1, 1, 1]  # the cancelled try does not count


async def test_a_deleted_stream_is_created_again(events: Events, handler: RecordingHandler, redis_client: Any) -> None:
    await emit_numbers(events, 1)
    async with reading(events, Consumer("news", "g", handler)) as first:
        await handler.until(1)
        await redis_client.delete(news().key)
        async with within_time_limit():
            await asyncio.wait([first])
    async with reading(events, Consumer("news", "g", handler)):
        await emit_numbers(events, 1, first=1)
        await handler.until(2)
    assert handler.numbers == [0, 1]


def _pairs(reply: Any) -> list[tuple[str, Any]]:
    """Return XREADGROUP's reply as pairs; redis-py returns a list or a mapping, depending on the protocol."""
    return list(reply.items()) if isinstance(reply, dict) else [tuple(pair) for pair in reply]
