"""Corrupted audience data."""

from __future__ import annotations

import time
from typing import Any

from plaza.live import keys as v
from tests.keyspace.audit.corruptions.corruption import CorruptionList
from tests.keyspace.audit.sample_community import SampleCommunity

corruptions = CorruptionList()


@corruptions.found_as("<event>#Event#Viewers", "viewer")
async def a_viewer_is_missing_in_the_statistics(client: Any, community: SampleCommunity) -> None:
    name = v.EVENT_STATISTICS("E1")
    await client.zrem(name, next(m for m in await client.zrange(name, 0, -1) if m.startswith("dora#")))


@corruptions.found_as("<event>#Event#Statistics", "viewer")
async def a_viewer_is_in_the_statistics_twice(client: Any, community: SampleCommunity) -> None:
    await client.zadd(v.EVENT_STATISTICS("E1"), {"dora#203.0.113.99##NZ": 5})


@corruptions.found_as("<session>#Session#Statistics", "member")
async def a_statistics_member_has_no_country(client: Any, community: SampleCommunity) -> None:
    await client.zadd(v.SESSION_STATISTICS("S1"), {"ana": 5})


@corruptions.found_as("<event>#Event#Viewers", "viewer")
async def a_viewer_counts_for_another_country(client: Any, community: SampleCommunity) -> None:
    await client.zincrby(v.EVENT_COUNTRIES("E1"), 2**42, "ana")


@corruptions.found_as("<event>#Event#Groups", "group")
async def a_viewer_counts_for_another_group(client: Any, community: SampleCommunity) -> None:
    await client.zadd(v.EVENT_GROUPS("E1"), {"1#dora": 2**42 + 5})


@corruptions.found_as("<event>#Event#Viewers", "group")
async def a_viewer_is_missing_in_a_group(client: Any, community: SampleCommunity) -> None:
    await client.zrem(v.EVENT_GROUPS("E1"), "1#ana")


@corruptions.found_as("<session>#Session#Viewers", "viewer")
async def a_viewer_did_not_attend(client: Any, community: SampleCommunity) -> None:
    await client.srem(v.SESSION_ATTENDED("S1"), "ana")


@corruptions.found_as("<event>#Event#Heartbeat", "viewer")
async def a_heartbeat_of_a_missing_viewer(client: Any, community: SampleCommunity) -> None:
    await client.zadd(v.EVENT_HEARTBEAT("E1"), {"missing": time.time() * 1000})


@corruptions.found_as("<event>#<location>#ViewingSessionStart", "viewing")
async def a_viewing_session_has_no_end(client: Any, community: SampleCommunity) -> None:
    await client.zrem(v.VIEWING_END("E1", "phone"), "ana")


@corruptions.found_as("<event>#Event#Info", "awake")
async def the_event_will_never_be_recorded(client: Any, community: SampleCommunity) -> None:
    await client.delete(v.LIVE_AWAKE())
