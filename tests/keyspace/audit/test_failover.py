"""After a failover that lost writes, derived data is repaired without an operator."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from plaza.app import running
from plaza.core import event_progress, metrics
from plaza.core.embedded_valkey import EmbeddedValkey
from plaza.core.errors import Unavailable
from plaza.core.events import Events
from plaza.core.invariants import NOT_COMPARED, Violation
from plaza.core.leases import Lease, LeaseHeld
from plaza.core.settings import Settings
from plaza.core.valkey.address import parse_url
from plaza.core.valkey.rdb_stream import open_rdb
from plaza.keyspace.audit import AuditReport, Audits, FailoverWatch
from plaza.keyspace.audit.scanner import Scanner
from plaza.keyspace.audit_keys import AUDIT_LAST, AUDIT_PRIMARIES
from plaza.notifications.invariants import NotificationInspector
from plaza.notifications.keys import NOTIFICATION_ACTORS
from plaza.search.jobs import GROUP, STREAMS
from plaza.social.keys import POST, POST_LIKES, USER
from tests.databases import with_tables
from tests.failovers import lossy_failover
from tests.http_servers import all_of_plaza
from tests.keyspace.audit.sample_community import load
from tests.processes import ServerProcess
from tests.servers import Server, running_cluster, running_server
from tests.steady_events import create_groups, handle_all
from tests.waiting import eventually


async def repaired(*watches: FailoverWatch) -> list[AuditReport]:
    """The reports of the repairs that several processes run, once Valkey is available."""

    async def check() -> list[AuditReport]:
        found = await asyncio.gather(*(watch.check() for watch in watches), return_exceptions=True)
        unexpected = [each for each in found if isinstance(each, Exception) and not isinstance(each, ALLOWED)]
        assert not unexpected
        return [each for each in found if isinstance(each, AuditReport)]

    reports: list[AuditReport] = await eventually(check)
    return reports


ALLOWED = (Unavailable, LeaseHeld)


async def test_derived_data_is_repaired_after_a_failover_that_lost_writes(tmp_path: Path) -> None:
    with running_cluster(2, 1) as cluster:
        async with all_of_plaza(cluster, tmp_path) as plaza:
            audits = plaza.get(Audits)
            assert await FailoverWatch(audits, tmp_path).check() is None  # the first check stores the primaries
            async with lossy_failover(cluster):
                await load(plaza)
            # Two workers that were started after it: one repairs.
            (report,) = await repaired(FailoverWatch(audits, tmp_path), FailoverWatch(audits, tmp_path))
            assert report.mode == "failover"
            assert report.repaired > 10
            assert report.clean, report.left
            after = await audits.run()
            assert after.clean, after.groups
            assert await FailoverWatch(audits, tmp_path).check() is None


async def test_a_worker_process_repairs_after_a_failover_that_lost_writes(tmp_path: Path) -> None:
    with running_cluster(2, 1) as cluster:
        async with all_of_plaza(cluster, tmp_path) as plaza:
            valkey, audits = plaza.core.valkey, plaza.get(Audits)
            worker = ServerProcess(tmp_path, "worker", PLAZA_VALKEY_URL=cluster.url)
            try:
                await eventually(lambda: valkey.call("EXISTS", AUDIT_PRIMARIES()))
                async with lossy_failover(cluster):
                    await load(plaza)

                await eventually(lambda: _has_state(audits, "running", "done"))
                await eventually(lambda: _has_state(audits, "done"))
                # Jobs of the worker complete what the failover interrupted.
                await eventually(lambda: _is_clean(audits))
            finally:
                assert worker.stop() == 0


async def _has_state(audits: Audits, *states: str) -> bool:
    """Whether the repair after a failover has one of these states."""
    with contextlib.suppress(Unavailable):
        state = await audits.state()
        return any(each and each.mode == "failover" and each.state in states for each in (state.running, state.last))
    return False


async def _is_clean(audits: Audits) -> bool:
    with contextlib.suppress(LeaseHeld):
        return (await audits.run()).clean
    return False


async def test_a_server_that_restarts_without_its_data_is_noticed(tmp_path: Path) -> None:
    with running_server() as server:
        async with all_of_plaza(server, tmp_path) as plaza:
            watch = FailoverWatch(plaza.get(Audits), tmp_path)
            assert await watch.check() is None
            async with open_rdb(parse_url(server.url)[0][0]) as backup:
                assert [data async for data in backup.chunks()]
            assert await watch.check() is None, "a backup is no failover"
            server.stop(signal.SIGKILL)
            server.start()
            (report,) = await repaired(watch)
            assert report.clean, report.left
            assert await watch.check() is None


async def test_a_restart_of_the_embedded_valkey_repairs_nothing(tmp_path: Path) -> None:
    settings = Settings(data_dir=with_tables(tmp_path))
    for _ in range(2):
        async with (
            EmbeddedValkey(tmp_path) as valkey,
            running(Settings(data_dir=settings.data_dir, valkey_url=valkey.url)) as plaza,
        ):
            assert await FailoverWatch(plaza.get(Audits), tmp_path).check() is None
            assert await plaza.core.valkey.call("EXISTS", AUDIT_LAST()) == 0


async def test_the_repair_completes_derived_data_and_deletes_nothing_of_others(server: Server, tmp_path: Path) -> None:
    """Keys of a wrong type and odd members are findings for an operator: a failover does not cause them."""
    with server.redis_client() as client:
        async with all_of_plaza(server, tmp_path) as plaza:
            community = await load(plaza)
            first, second, *_ = community.posts
            client.hset(POST(first), "likesCount", 99)
            client.delete(POST_LIKES(second))
            client.set(POST_LIKES(second), "text")
            client.hset(USER("ana"), "shoe_size", "38")
            client.set("other:key", "1")
            report = await plaza.get(Audits).run("failover")
            assert report.clean, report.left
            assert client.hget(POST(first), "likesCount") == str(client.scard(POST_LIKES(first)))
            assert client.get(POST_LIKES(second)) == "text"
            assert client.hget(USER("ana"), "shoe_size") == "38"
            assert client.get("other:key") == "1"


async def test_a_repair_that_could_not_compare_all_is_repeated(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_progress, "MAX_IDLE_SECONDS", 0)
    async with all_of_plaza(server, tmp_path) as plaza:
        valkey, watch = plaza.core.valkey, FailoverWatch(plaza.get(Audits), tmp_path)
        await valkey.call("HSET", AUDIT_PRIMARIES(), "former", "0-16383")
        await create_groups(valkey, STREAMS, GROUP)
        await Events(plaza.core.functions).emit(STREAMS[0], "", type="test.event")
        for _ in range(2):
            report = await watch.check()
            assert report is not None
            assert [(group.family, group.rule) for group in report.left] == [("search_document", NOT_COMPARED)]
            assert await valkey.call("HKEYS", AUDIT_PRIMARIES()) == ["former"]
        with pytest.raises(Unavailable, match="search_document: not compared, because events wait"):
            await watch.timer().run(Lease(plaza.core.functions, "core.failover", 1))
        await handle_all(valkey, STREAMS, GROUP)
        report = await watch.check()
        assert report is not None
        assert report.clean
        assert await watch.check() is None


async def test_a_repair_that_fails_is_repeated_and_its_metrics_say_so(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(self: NotificationInspector) -> AsyncIterator[Violation]:
        raise OverflowError("cannot convert float infinity to integer")
        yield

    async with all_of_plaza(server, tmp_path) as plaza:
        valkey, watch = plaza.core.valkey, FailoverWatch(plaza.get(Audits), tmp_path)
        await valkey.call("HSET", AUDIT_PRIMARIES(), "former", "0-16383")
        before = metric_value("plaza_failovers_total")
        with monkeypatch.context() as patch:
            patch.setattr(NotificationInspector, "inspect", fail)
            for _ in range(2):
                report = await watch.check()
                assert report is not None
                ((finding,),) = [group.examples for group in report.left]
                assert (finding.family, finding.rule) == (NOTIFICATION_ACTORS.pattern, NOT_COMPARED)
                assert "OverflowError: cannot convert float infinity" in finding.says
                assert metric_value("plaza_failover_repair_progress_ratio") == 0
            patch.setattr(Scanner, "total", lambda self: fail(self).__anext__())
            with pytest.raises(OverflowError):
                await watch.check()
            assert metric_value("plaza_failover_repair_progress_ratio") == 0
        report = await watch.check()
        assert report is not None
        assert report.clean
        assert metric_value("plaza_failovers_total") == before + 1
        assert metric_value("plaza_failover_repair_progress_ratio") == 1


def metric_value(name: str) -> float:
    return metrics.REGISTRY.get_sample_value(name) or 0.0
