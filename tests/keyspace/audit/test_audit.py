"""The audit finds what is wrong, names it, and finds nothing where nothing is."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from plaza.app import Plaza
from plaza.cli import main
from plaza.core.auth import API, Actor
from plaza.core.errors import Forbidden
from plaza.core.invariants import Entry
from plaza.core.keyspace import Layout, use_layout
from plaza.core.leases import Held
from plaza.core.outbox import Note
from plaza.core.valkey import Valkey
from plaza.keyspace.audit import REPAIR, Audits, Report, basic_invariants
from plaza.keyspace.audit.recheck import Confirmer, Suspect
from plaza.keyspace.audit.throttle import Pace
from plaza.social.keys import EXPLORE_FEED, POST, POST_LIKES, USER
from tests.keyspace.audit.sample_community import Town
from tests.servers import Server
from tests.waiting import eventually


async def test_a_town_where_everything_happened_is_clean(audits: Audits, town: Town) -> None:
    report = await audits.run()
    assert report.clean, report.groups
    assert report.keys > 150


async def test_what_nobody_declared_is_a_finding(audits: Audits, town: Town, redis_client: Any) -> None:
    await redis_client.set("somebody:elses", "1")
    report = await audits.run()
    (group,) = report.groups
    assert (group.rule, group.examples[0].key) == ("unknown", "somebody:elses")
    assert not report.clean


async def test_a_wrong_type_a_wrong_count_and_a_lifetime_are_told_apart(
    audits: Audits, town: Town, redis_client: Any
) -> None:
    first, second, third, _ = town.posts
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


async def test_the_last_report_is_kept_for_operators(audits: Audits, town: Town) -> None:
    await audits.run()
    state = await audits.state(API)
    assert state.running is None
    assert state.last is not None
    assert (state.last.state, state.last.clean) == ("done", True)


async def test_an_audit_in_the_background_is_seen_by_everyone_and_runs_once(
    plaza: Plaza, audits: Audits, town: Town, redis_client: Any
) -> None:
    for n in range(60):
        await redis_client.zadd(EXPLORE_FEED(), {f"00000000-0000-4000-8000-{n:012}": n})
    elsewhere = Audits(audits.auditor)
    await audits.start(API)
    assert (await elsewhere.state(API)).running is not None, "from its beginning on"
    with pytest.raises(Held):
        await audits.start(API)

    async def last() -> Report | None:
        return (await elsewhere.state(API)).last

    report: Report = await eventually(last)
    assert (await elsewhere.state(API)).running is None
    (group,) = report.groups
    assert (group.family, group.rule, group.count) == ("explore:feed", "listed", 60)
    assert len(group.examples) == 10, "a few are shown, all are counted"
    with pytest.raises(Forbidden):
        await audits.state(Actor("ana", "user"))


async def test_what_went_away_or_came_right_meanwhile_is_no_finding(
    plaza: Plaza, town: Town, redis_client: Any
) -> None:
    confirmer = Confirmer(plaza.core.functions, plaza.core.clock)
    families = plaza.get(Audits).auditor.families
    users, posts = families.of(USER), families.of(POST)
    gone = Entry(USER("gone"), ("gone",), value={"postCount": "4"})
    count = next(rule for rule in users.whole if rule.name == "count")
    assert await confirmer.confirm(Suspect(users, count, gone)) is None
    right = Entry(POST(town.posts[0]), (town.posts[0],), value={"likesCount": "99"})
    for rule in posts.whole:
        assert await confirmer.confirm(Suspect(posts, rule, right)) is None
    await redis_client.set("somebody:elses", "1", px=1)
    await asyncio.sleep(0.01)
    stray = Suspect(basic_invariants.STRANGER, basic_invariants.unknown(), Entry("somebody:elses", ("somebody:elses",)))
    assert await confirmer.confirm(stray) is None


@pytest.mark.parametrize("place", ["cluster"], indirect=True)
async def test_an_operation_that_nobody_settles_is_a_finding_until_it_is(
    audits: Audits, town: Town, redis_client: Any
) -> None:
    note = Note.beside("social", USER("ana"))
    await redis_client.hset(note.pending, "left-1", json.dumps({"at": 1, "todo": []}))
    await redis_client.sadd(note.slot, note.pending)
    (group,) = (await audits.run()).groups
    assert (group.family, group.rule) == ("pending:<library>:<owner>", "settled")
    assert (await audits.run(REPAIR)).clean


def test_the_command_says_what_is_wrong_and_by_its_exit_status_too(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PLAZA_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("PLAZA_VALKEY_URL", server.url)
    assert main(["audit"]) == 0
    with server.redis_client() as redis_client:
        redis_client.set("somebody:elses", "1")
        redis_client.zadd("explore:feed", {"00000000-0000-4000-8000-000000000000": 5})
    assert main(["audit", "--dry-run", "--json"]) == 1
    capsys.readouterr()
    assert main(["audit", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert [(group["family"], group["count"]) for group in report["groups"]] == [("explore:feed", 1), ("unknown", 1)]
    assert main(["audit", "--repair"]) == 1, "what nobody declared is left alone"
    told = capsys.readouterr().out
    assert "somebody:elses" in told
    with server.redis_client() as redis_client:
        assert redis_client.exists("somebody:elses")
        assert not redis_client.exists("explore:feed")
        redis_client.delete("somebody:elses")
    assert main(["audit"]) == 0
    use_layout(Layout.PLAIN)


async def test_the_audit_knows_whether_others_use_the_server(valkey: Valkey) -> None:
    pace, over = Pace(valkey), asyncio.Event()
    await pace.begin()
    assert not pace.busy

    async def somebody() -> None:
        while not over.is_set():
            await valkey.batch([("GET", "x")] * 1000)

    async def noticed() -> bool:
        await pace.begin()
        return pace.busy

    others = asyncio.create_task(somebody())
    await eventually(noticed)
    began = asyncio.get_running_loop().time()
    await asyncio.sleep(0.02)  # a step of work
    await pace.rest()
    assert asyncio.get_running_loop().time() - began > 0.1, "it works 15 % of the time"
    over.set()
    await others
