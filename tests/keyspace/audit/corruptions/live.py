"""Corrupted audience data."""

from __future__ import annotations

from typing import Any

from plaza.live import keys as v
from tests.keyspace.audit.corruptions.corruption import CorruptionList
from tests.keyspace.audit.sample_community import SampleCommunity

corruptions = CorruptionList()


@corruptions.found_as("<session>#Session#Heartbeat", "viewer")
async def a_viewer_has_no_entry(client: Any, community: SampleCommunity) -> None:
    await client.hdel(v.SESSION_VIEWERS("S1"), "ana")


@corruptions.found_as("<event>#Event#Viewers", "viewer")
async def an_entry_has_no_heartbeat(client: Any, community: SampleCommunity) -> None:
    await client.hset(v.EVENT_VIEWERS("E1"), "missing", "#203.0.113.99##NZ\n#")


@corruptions.found_as("<session>#Session#Statistics", "viewer")
async def an_entry_has_other_details_than_the_statistics(client: Any, community: SampleCommunity) -> None:
    await client.hset(v.SESSION_VIEWERS("S1"), "ana", "#203.0.113.99##FR")


@corruptions.found_as("<session>#Session#Statistics", "member", kept=True)
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


@corruptions.found_as("<event>#Event#Left", "left")
async def a_viewer_who_is_alive_has_left(client: Any, community: SampleCommunity) -> None:
    await client.zadd(v.EVENT_LEFT("E1"), {"dora": 5})


@corruptions.found_as("<event>#<location>#ViewingSessionStart", "room")
async def a_place_is_missing_in_the_list(client: Any, community: SampleCommunity) -> None:
    await client.hdel(v.EVENT_ROOMS("E1"), "phone")


@corruptions.found_as("<event>#Event#Info", "awake")
async def the_event_will_never_be_recorded(client: Any, community: SampleCommunity) -> None:
    await client.delete(v.LIVE_AWAKE())
