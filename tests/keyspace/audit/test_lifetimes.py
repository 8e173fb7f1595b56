"""Lifetimes after Valkey's clock was set back: all keys would live longer by that step."""

from __future__ import annotations

from typing import Any

from plaza.keyspace.audit import Audits
from plaza.keyspace.lifetimes import cut_lifetimes
from tests.keyspace.audit.sample_community import SampleCommunity

HOUR_MS = 3_600_000


async def test_lifetimes_are_cut_to_the_declared_ones(
    audits: Audits, community: SampleCommunity, redis_client: Any
) -> None:
    left = {name: await redis_client.pttl(name) async for name in redis_client.scan_iter()}
    for name, ms in left.items():
        if ms > 0:
            await redis_client.pexpire(name, ms + HOUR_MS)
    assert {group.rule for group in (await audits.run()).groups} == {"lifetime"}
    await cut_lifetimes(audits.auditor.functions, audits.auditor.families)
    assert (await audits.run()).clean
    for name, ms in left.items():
        assert ms > 0 or await redis_client.pttl(name) < 0, "what does not expire stays so"
