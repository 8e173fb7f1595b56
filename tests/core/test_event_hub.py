"""Listeners get every event they want, in order and once, from one read of the streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from plaza.core import event_hub
from plaza.core.clock import Clock
from plaza.core.errors import Invalid
from plaza.core.event_cursor import MAX_NUMBER, cursor_from_position, merge_entries, parse_entry_id
from plaza.core.event_hub import EventHub, EventsTrimmed, EventSubscription
from plaza.core.event_streams import EventStream, stream_of
from plaza.core.event_trimming import EventTrimming
from plaza.core.events import EVENTS, Events, TypeFilter
from plaza.core.functions import Functions
from plaza.core.valkey import Valkey
from tests.event_reader import read_events
from tests.timeouts import within_time_limit

NAMES = ["articles", "shop", "social"]
ALL = TypeFilter()


@pytest.fixture
async def functions(valkey: Valkey) -> Functions:
    functions = Functions(valkey, [EVENTS])
    await functions.load()
    return functions


@pytest.fixture
async def hub(functions: Functions) -> AsyncIterator[EventHub]:
    hub = EventHub(functions, NAMES, Clock(), days=7, max_events=1_000_000)
    yield hub
    hub.close()


async def emit(functions: Functions, count: int, first: int = 0) -> None:
    """Emit events in all streams, one after the other, so that they have one order."""
    for n in range(first, first + count):
        await Events(functions).emit(NAMES[n % 3], f"owner{n % 5}", type="post.liked", subject=str(n % 5), n=n)


async def take(subscription: EventSubscription, count: int) -> list[Any]:
    async with within_time_limit():
        return [await anext(subscription) for _ in range(count)]


def numbers(entries: list[Any]) -> list[int]:
    return [int(entry.event.fields["n"]) for entry in entries]


async def total_order(redis_client: Any) -> list[int]:
    """Return the numbers of all events in the order of milliseconds, number and stream."""
    events = [event for name in NAMES for event in await read_events(redis_client, name)]
    events.sort(key=lambda event: (parse_entry_id(event.entry_id), event.stream))
    return [int(event.fields["n"]) for event in events]


async def test_listeners_get_all_events_in_order(functions: Functions, hub: EventHub, redis_client: Any) -> None:
    await emit(functions, 5)
    subscriptions = [await hub.subscribe(ALL, None, None) for _ in range(20)]
    await emit(functions, 40, first=5)
    expected = [n for n in await total_order(redis_client) if n >= 5]
    for subscription in subscriptions:
        found = numbers(await take(subscription, 40))
        if functions.valkey.clustered:
            assert sorted(found) == sorted(expected)
        else:
            assert found == expected
        await subscription.aclose()


async def test_a_listener_gets_the_types_and_the_subject_it_wants(functions: Functions, hub: EventHub) -> None:
    one = await hub.subscribe(TypeFilter(["comment.*", "user.followed"]), None, None)
    two = await hub.subscribe(ALL, "b", None)
    events = Events(functions)
    for kind, subject in (("post.liked", "a"), ("comment.created", "a"), ("user.followed", "b"), ("user.renamed", "a")):
        await events.emit("social", "owner", type=kind, subject=subject)
    assert [entry.event.type for entry in await take(one, 2)] == ["comment.created", "user.followed"]
    assert [entry.event.type for entry in await take(two, 1)] == ["user.followed"]


async def test_a_listener_resumes_after_any_event_while_others_are_added(
    functions: Functions, hub: EventHub, redis_client: Any
) -> None:
    """On one server exactly; on a cluster it may get some of the last seconds again."""
    first = await hub.subscribe(ALL, None, None)
    await emit(functions, 30)
    seen = await take(first, 30)
    adding = asyncio.create_task(emit(functions, 30, first=30))
    for position in (0, 7, 29):
        resumed = await hub.subscribe(ALL, None, seen[position].position)
        if functions.valkey.clustered:
            missing = set(range(60)) - set(numbers(seen[: position + 1]))
            while missing:
                missing -= set(numbers(await take(resumed, 1)))
        else:
            found = numbers(seen[: position + 1] + await take(resumed, 59 - position))
            assert found == await total_order(redis_client)
        await resumed.aclose()
    await adding


async def test_resuming_reads_more_than_one_batch(
    functions: Functions, hub: EventHub, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_hub, "BATCH", 4)
    first = await hub.subscribe(ALL, None, None)
    await emit(functions, 50)
    seen = await take(first, 50)
    resumed = await hub.subscribe(ALL, None, seen[0].position)
    found = numbers(await take(resumed, 49))
    if not functions.valkey.clustered:
        assert [*numbers(seen[:1]), *found] == numbers(seen) == await total_order(redis_client)


async def test_a_listener_that_does_not_keep_up_is_cut_off(
    functions: Functions, hub: EventHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_hub, "MAX_WAITING", 10)
    slow, fast = await hub.subscribe(ALL, None, None), await hub.subscribe(ALL, None, None)
    for n in range(30):
        await emit(functions, 1, first=n)
        assert numbers(await take(fast, 1)) == [n]
    async with within_time_limit():
        assert len([entry async for entry in slow]) <= 10
    assert len(hub._listeners) == 1


async def test_a_trimmed_position_is_refused_and_a_recent_one_is_not(
    functions: Functions, hub: EventHub, redis_client: Any
) -> None:
    stream = stream_of("social", "owner0")
    for n in range(1, 301):
        await redis_client.xadd(stream.key, {"type": "post.liked"}, id=f"{n}-1")
    assert await EventTrimming(functions, 7, 10**6).trim("social") == 300
    with pytest.raises(EventsTrimmed):
        await hub.subscribe(ALL, None, "social-100-1")
    await emit(functions, 1)
    recent = f"social-{Clock().now_ms() - 86_400_000}-0"  # nothing was removed since then
    assert numbers(await take(await hub.subscribe(ALL, None, recent), 1)) == [0]


async def test_an_id_that_is_none_is_refused(hub: EventHub) -> None:
    for position in ("", "5", "social", "social-1", "1-2-3", "social-1-x", f"social-{'9' * 30}-1"):
        with pytest.raises(Invalid):
            await hub.subscribe(ALL, None, position)
    assert hub._listeners == set()


async def test_without_listeners_nothing_is_read(functions: Functions, hub: EventHub) -> None:
    subscription = await hub.subscribe(ALL, None, None)
    assert hub._tasks
    await subscription.aclose()
    assert not hub._tasks
    await emit(functions, 3)
    again = await hub.subscribe(ALL, None, None)  # it starts with the next event
    await emit(functions, 1, first=3)
    assert numbers(await take(again, 1)) == [3]


async def test_a_thousand_listeners_cost_one_read(functions: Functions, hub: EventHub) -> None:
    subscriptions = [await hub.subscribe(ALL, None, None) for _ in range(1_000)]
    reads = 0
    query = functions.query

    async def counted(name: str, *args: Any, **options: Any) -> Any:
        nonlocal reads
        reads += name == "events_after"
        return await query(name, *args, **options)

    functions.query = counted  # type: ignore[assignment,method-assign]
    await Events(functions).emit("social", "owner", type="post.liked", n=1)
    for subscription in subscriptions:
        assert numbers(await take(subscription, 1)) == [1]
    assert reads < 50  # those of one follower, not of a thousand


def test_entries_of_several_streams_have_one_order() -> None:
    def reply(*ids: str) -> list[Any]:
        return [[id, ["n", id]] for id in ids]

    names = {"events:a": "a", "events:b": "b"}
    merged = merge_entries(names, [("events:b", reply("1-1", "2-0")), ("events:a", reply("1-1", "1-2", "3-0"))], 10)
    assert [entry.position for entry in merged] == ["a-1-1", "b-1-1", "a-1-2", "b-2-0", "a-3-0"]
    # Stream b may have more behind its second entry, so what comes after it waits.
    merged = merge_entries(names, [("events:b", reply("1-1", "2-0")), ("events:a", reply("3-0"))], 2)
    assert [entry.position for entry in merged] == ["b-1-1", "b-2-0"]


def test_one_id_is_a_position_in_all_streams() -> None:
    streams = [EventStream("a"), EventStream("b"), EventStream("c")]
    assert cursor_from_position("b-5-0", streams) == {
        "events:a": (5, 0),
        "events:b": (5, 0),
        "events:c": (4, MAX_NUMBER),
    }
