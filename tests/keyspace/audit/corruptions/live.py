"""Audiences that another writer broke."""

from __future__ import annotations

import time
from typing import Any

from plaza.live import keys as v
from tests.keyspace.audit.corruptions.ways import Breaks
from tests.keyspace.audit.sample_community import Town

breaks = Breaks()


@breaks.found_as("<event>#Event#Viewers", "viewer")
async def a_viewer_is_missing_in_the_statistics(r: Any, t: Town) -> None:
    name = v.EVENT_STATISTICS("E1")
    await r.zrem(name, next(m for m in await r.zrange(name, 0, -1) if m.startswith("dora#")))


@breaks.found_as("<event>#Event#Statistics", "viewer")
async def a_viewer_is_in_the_statistics_twice(r: Any, t: Town) -> None:
    await r.zadd(v.EVENT_STATISTICS("E1"), {"dora#203.0.113.99##NZ": 5})


@breaks.found_as("<session>#Session#Statistics", "member")
async def a_statistics_member_has_no_country(r: Any, t: Town) -> None:
    await r.zadd(v.SESSION_STATISTICS("S1"), {"ana": 5})


@breaks.found_as("<event>#Event#Viewers", "viewer")
async def a_viewer_is_counted_for_another_country(r: Any, t: Town) -> None:
    await r.zincrby(v.EVENT_COUNTRIES("E1"), 2**42, "ana")


@breaks.found_as("<event>#Event#Groups", "group")
async def a_viewer_is_counted_for_a_group(r: Any, t: Town) -> None:
    await r.zadd(v.EVENT_GROUPS("E1"), {"1#dora": 2**42 + 5})


@breaks.found_as("<event>#Event#Viewers", "group")
async def a_viewer_is_missing_in_a_group(r: Any, t: Town) -> None:
    await r.zrem(v.EVENT_GROUPS("E1"), "1#ana")


@breaks.found_as("<session>#Session#Viewers", "viewer")
async def a_viewer_did_not_attend(r: Any, t: Town) -> None:
    await r.srem(v.SESSION_ATTENDED("S1"), "ana")


@breaks.found_as("<event>#Event#Heartbeat", "viewer")
async def a_heartbeat_of_nobody(r: Any, t: Town) -> None:
    await r.zadd(v.EVENT_HEARTBEAT("E1"), {"ghost": time.time() * 1000})


@breaks.found_as("<event>#<location>#ViewingSessionStart", "viewing")
async def a_viewing_session_has_no_end(r: Any, t: Town) -> None:
    await r.zrem(v.VIEWING_END("E1", "phone"), "ana")


@breaks.found_as("<event>#Event#Info", "awake")
async def nobody_will_record_the_event(r: Any, t: Town) -> None:
    await r.delete(v.LIVE_AWAKE())
