"""Each operation of live emits its event; a heartbeat that only continues a viewing session emits none."""

from __future__ import annotations

from typing import Any

from plaza.app import Plaza
from plaza.core.clock import ManualClock
from plaza.live.events import EVENTS
from plaza.live.heartbeats import LiveService
from plaza.live.history import AudienceHistory
from plaza.live.model import EventDeclaration, Heartbeat, LeaveRequest, Viewer
from plaza.live.recorder import AudienceRecorder
from tests.events.recorder import PRIVATE, EventRecorder

ANA, BEN = Viewer("ana", "203.0.113.1", "FR"), Viewer("ben", "203.0.113.2", "NZ")


async def test_every_type_is_emitted(plaza: Plaza, redis_client: Any, clock: ManualClock) -> None:
    core, recorder = plaza.core, EventRecorder(plaza, redis_client)
    live = LiveService(core.functions, core.settings, clock)
    for title, sessions in ((PRIVATE, ["s1"]), (f"{PRIVATE} 2", ["s1"]), (f"{PRIVATE} 2", ["s1", "s2"])):
        for _ in range(2):  # the second declaration changes nothing
            await live.declare("e1", EventDeclaration(title, sessions))
        await recorder.expect(("event.declared", {"event": "e1"}))
    start = clock.now_ms()
    for _ in range(2):
        await live.beat(ANA, "e1", Heartbeat("web", "s1"))
    await live.beat(BEN, "e1", Heartbeat("web"))
    ana = {"event": "e1", "viewer": "ana", "location": "web", "session": "s1", "started_at": start}
    ben = {"event": "e1", "viewer": "ben", "location": "web", "started_at": start}
    await recorder.expect(("viewing.started", ana), ("viewing.started", ben))
    clock.advance(seconds=10)
    for _ in range(2):
        await live.leave(ANA, "e1", LeaveRequest("web", "s1"))
    await recorder.expect(("viewing.ended", {**ana, "ended_at": start + 10_000}))
    clock.advance(seconds=600)
    for _ in range(2):
        await AudienceRecorder(core.functions, AudienceHistory(core.sql), core.settings, clock).record()
    await recorder.expect(
        ("event.peaked", {"event": "e1", "viewers": 2, "reached_at": start}),
        ("viewing.ended", {**ben, "ended_at": start}),
        ("event.ended", {"event": "e1", "ended_at": start + 10_000, "max_concurrent": 2, "attended": 2}),
    )
    assert recorder.types == {event_type.type for event_type in EVENTS}


async def test_a_heartbeat_after_a_gap_ends_one_viewing_session_and_starts_another(
    plaza: Plaza, redis_client: Any, clock: ManualClock
) -> None:
    core, recorder = plaza.core, EventRecorder(plaza, redis_client)
    live, start = LiveService(core.functions, core.settings, clock, origin="import"), clock.now_ms()
    await live.beat(ANA, "e1", Heartbeat("web"))
    clock.advance(seconds=120)
    await live.beat(ANA, "e1", Heartbeat("web"))
    data = {"event": "e1", "viewer": "ana", "location": "web"}
    await recorder.expect(
        ("viewing.started", {**data, "started_at": start}),
        ("viewing.ended", {**data, "started_at": start, "ended_at": start}),
        ("viewing.started", {**data, "started_at": start + 120_000}),
        origin="import",
    )


async def test_a_growing_audience_tells_no_peak_and_a_slow_one_few(
    plaza: Plaza, redis_client: Any, clock: ManualClock
) -> None:
    core, recorder = plaza.core, EventRecorder(plaza, redis_client)
    live = LiveService(core.functions, core.settings, clock)
    worker = AudienceRecorder(core.functions, AudienceHistory(core.sql), core.settings, clock)
    names = [f"p{n}" for n in range(40)]

    async def watch(viewers: list[str], seconds: int) -> None:
        for _ in range(0, seconds, 20):
            for name in viewers:
                await live.beat(Viewer(name, "", "ZZ"), "e1", Heartbeat("web"))
            await worker.record()
            clock.advance(seconds=20)

    for size in range(1, 21):
        await watch(names[:size], 20)
    assert "event.peaked" not in {event.type for event in await recorder.new_events()}
    await watch(names[:20], 120)
    for size in (21, 21, 22):  # each stands, but only the last is a tenth higher
        await watch(names[:size], 100)
    peaks = [event.data["viewers"] for event in await recorder.new_events() if event.type == "event.peaked"]
    assert peaks == [20, 22]
