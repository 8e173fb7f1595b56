"""The audit reports violated invariants, and nothing else."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from plaza.app import Plaza
from plaza.cli import main
from plaza.core.invariants import Entry
from plaza.core.keyspace import Layout, use_layout
from plaza.core.leases import LeaseHeld
from plaza.core.outbox import OutboxEntry
from plaza.core.valkey import Valkey
from plaza.keyspace.audit import REPAIR, AuditReport, Audits, basic_invariants
from plaza.keyspace.audit.recheck import Rechecker, Suspicion
from plaza.keyspace.audit.throttle import Throttle
from plaza.social.keys import EXPLORE_FEED, POST, POST_LIKES, USER
from tests.databases import with_tables
from tests.keyspace.audit.sample_community import SampleCommunity
from tests.servers import Server
from tests.waiting import eventually


async def test_a_community_that_uses_every_feature_has_no_findings(audits: Audits, community: SampleCommunity) -> None:
    report = await audits.run()
    assert report.clean, report.groups
    assert report.keys > 150


async def test_an_undeclared_key_is_a_finding(audits: Audits, community: SampleCommunity, redis_client: Any) -> None:
    await redis_client.set("other:key", "1")
    report = await audits.run()
    (group,) = report.groups
    assert (group.rule, group.examples[0].key) == ("unknown", "other:key")
    assert not report.clean


async def test_wrong_type_wrong_count_and_wrong_lifetime_are_different_findings(
    audits: Audits, community: SampleCommunity, redis_client: Any
) -> None:
    first, second, third, _ = community.posts
    await redis_client.hset(POST(first), "likesCount", 99)
    await redis_client.delete(POST_LIKES(second))
    await redis_client.set(POST_LIKES(second), "text")
    await redis_client.expire(POST(third), 100)
    found = {(group.family, group.rule) for group in (await audits.run()).groups}
    assert {
        ("post:<post>", "count"),
        ("post:<post>:likes", "type"),
        ("post:<post>", "lifetime"),
    } <= found


async def test_the_last_report_is_stored(audits: Audits, community: SampleCommunity) -> None:
    await audits.run()
    state = await audits.state()
    assert state.running is None
    assert state.last is not None
    assert (state.last.state, state.last.clean) == ("done", True)


async def test_a_background_audit_is_visible_to_other_processes_and_runs_once(
    plaza: Plaza, audits: Audits, community: SampleCommunity, redis_client: Any
) -> None:
    for n in range(60):
        await redis_client.zadd(EXPLORE_FEED(), {f"00000000-0000-4000-8000-{n:012}": n})
    other_process = Audits(audits.auditor)
    await audits.start()
    assert (await other_process.state()).running is not None, "visible from its start"
    with pytest.raises(LeaseHeld):
        await audits.start()

    async def last() -> AuditReport | None:
        return (await other_process.state()).last

    report: AuditReport = await eventually(last)
    assert (await other_process.state()).running is None
    (group,) = report.groups
    assert (group.family, group.rule, group.count) == ("explore:feed", "listed", 60)
    assert len(group.examples) == 10, "ten examples, all counted"


async def test_a_suspicion_that_was_deleted_or_corrected_is_no_finding(
    plaza: Plaza, community: SampleCommunity, redis_client: Any
) -> None:
    rechecker = Rechecker(plaza.core.functions, plaza.core.clock)
    families = plaza.get(Audits).auditor.families
    users, posts = families.for_key(USER), families.for_key(POST)
    gone = Entry(USER("gone"), ("gone",), value={"postCount": "4"})
    count = next(rule for rule in users.key_invariants if rule.name == "count")
    assert await rechecker.confirm(Suspicion(users, count, gone)) is None
    right = Entry(POST(community.posts[0]), (community.posts[0],), value={"likesCount": "99"})
    for rule in posts.key_invariants:
        assert await rechecker.confirm(Suspicion(posts, rule, right)) is None
    await redis_client.set("other:key", "1", px=1)
    await asyncio.sleep(0.01)
    undeclared = Suspicion(basic_invariants.UNDECLARED, basic_invariants.unknown(), Entry("other:key", ("other:key",)))
    assert await rechecker.confirm(undeclared) is None


@pytest.mark.parametrize("place", ["cluster"], indirect=True)
async def test_an_outbox_entry_that_is_never_settled_is_a_finding_until_repaired(
    audits: Audits, community: SampleCommunity, redis_client: Any
) -> None:
    note = OutboxEntry.for_key("social", USER("ana"))
    await redis_client.hset(note.pending, "left-1", json.dumps({"at": 1, "todo": []}))
    await redis_client.sadd(note.slot, note.pending)
    (group,) = (await audits.run()).groups
    assert (group.family, group.rule) == ("pending:<library>:<owner>", "settled")
    assert (await audits.run(REPAIR)).clean


def test_the_command_prints_findings_and_exits_with_1(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PLAZA_DATA_DIR", str(with_tables(tmp_path)))
    monkeypatch.setenv("PLAZA_VALKEY_URL", server.url)
    assert main(["audit"]) == 0
    with server.redis_client() as redis_client:
        redis_client.set("other:key", "1")
        redis_client.zadd("explore:feed", {"00000000-0000-4000-8000-000000000000": 5})
    assert main(["audit", "--dry-run", "--json"]) == 1
    capsys.readouterr()
    assert main(["audit", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert [(group["family"], group["count"]) for group in report["groups"]] == [("explore:feed", 1), ("unknown", 1)]
    assert main(["audit", "--repair"]) == 1, "undeclared keys are not repaired"
    output = capsys.readouterr().out
    assert "other:key" in output
    with server.redis_client() as redis_client:
        assert redis_client.exists("other:key")
        assert not redis_client.exists("explore:feed")
        redis_client.delete("other:key")
    assert main(["audit"]) == 0
    use_layout(Layout.PLAIN)


async def test_the_throttle_detects_traffic_of_other_clients(valkey: Valkey) -> None:
    throttle, stop = Throttle(valkey), asyncio.Event()
    await throttle.begin()
    assert not throttle.busy

    async def send_commands() -> None:
        while not stop.is_set():
            await valkey.batch([("GET", "x")] * 1000)

    async def is_busy() -> bool:
        await throttle.begin()
        return throttle.busy

    others = asyncio.create_task(send_commands())
    await eventually(is_busy)
    began = asyncio.get_running_loop().time()
    await asyncio.sleep(0.02)  # a step of work
    await throttle.rest()
    assert asyncio.get_running_loop().time() - began > 0.1, "it works 15 % of the time"
    stop.set()
    await others
