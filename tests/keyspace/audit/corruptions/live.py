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
    await client.hset(v.EVENT_VIEWERS("E1"), "missing", "-NZ\n#")


@corruptions.found_as("<session>#Session#Viewers", "viewer")
async def an_entry_has_another_country_than_the_statistics(client: Any, community: SampleCommunity) -> None:
    await client.hset(v.SESSION_VIEWERS("S1"), "ana", "+FR")


@corruptions.found_as("<session>#Session#Statistics", "member", kept=True)
async def a_statistics_member_has_no_country(client: Any, community: SampleCommunity) -> None:
    await client.zadd(v.SESSION_STATISTICS("S1"), {"ana": 5})


@corruptions.found_as("<event>#Event#Viewers", "viewer")
async def a_viewer_is_not_counted(client: Any, community: SampleCommunity) -> None:
    entry = await client.hget(v.EVENT_VIEWERS("E1"), "ana")
    await client.hset(v.EVENT_VIEWERS("E1"), "ana", "-" + entry[1:])


@corruptions.found_as("<event>#Event#Counts", "count")
async def a_country_has_too_many_viewers(client: Any, community: SampleCommunity) -> None:
    await client.hincrby(v.EVENT_COUNTS("E1"), "c#NZ", 5)


@corruptions.found_as("<event>#Event#Counts", "count")
async def a_group_without_viewers_is_counted(client: Any, community: SampleCommunity) -> None:
    await client.hset(v.EVENT_COUNTS("E1"), "g#empty", 1)


@corruptions.found_as("<event>#Event#Left", "left")
async def a_viewer_who_is_alive_has_left(client: Any, community: SampleCommunity) -> None:
    await client.zadd(v.EVENT_LEFT("E1"), {"dora": 5})


@corruptions.found_as("<event>#<location>#ViewingSessionStart", "room")
async def a_place_is_missing_in_the_list(client: Any, community: SampleCommunity) -> None:
    await client.hdel(v.EVENT_ROOMS("E1"), "phone")


@corruptions.found_as("<event>#Event#Info", "awake")
async def the_event_will_never_be_recorded(client: Any, community: SampleCommunity) -> None:
    await client.delete(v.LIVE_AWAKE())
