"""Plaza opens and closes all its parts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from plaza.app import running
from plaza.core.domain import Domain, Parts
from plaza.core.keyspace import Layout, use_layout
from plaza.core.settings import Settings
from plaza.serve import background_worker
from plaza.shutdown import Shutdown
from tests.core.ledger import BOX_ITEMS, LIBRARY
from tests.servers import Cluster, Server
from tests.timeouts import within_time_limit


@pytest.fixture
def layouts() -> Iterator[None]:
    yield
    use_layout(Layout.PLAIN)


@pytest.mark.usefixtures("layouts")
async def test_the_outbox_of_a_cancelled_request_is_settled_before_the_connection_closes(
    cluster: Cluster, tmp_path: Path
) -> None:
    ledger = Domain(LIBRARY, [], lambda core: Parts([]))
    async with running(Settings(data_dir=tmp_path, valkey_url=cluster.url), [ledger]) as plaza:
        functions = plaza.core.functions
        await functions.run("ledger_put", [BOX_ITEMS("b1")], "b1", "s1", "nut", 3)
        request = asyncio.create_task(functions.run("ledger_put", [BOX_ITEMS("b2")], "b2", "s1", "nut", 3))
        for _ in range(100_000):  # settling takes only a few iterations of the event loop, so each one is checked
            if functions.outbox.in_progress:
                break
            await asyncio.sleep(0)
        assert request.cancel()
    with contextlib.closing(cluster.redis_client()) as redis_client:
        assert redis_client.exists("box:{b2}:items")
        assert list(redis_client.scan_iter("pending:*")) == []


async def test_a_domain_is_closed_also_after_an_error(server: Server, tmp_path: Path) -> None:
    ended: list[str] = []
    ledger = Domain(LIBRARY, [], lambda core: Parts([], on_close=[lambda: ended.append("ledger")]))
    with pytest.raises(ZeroDivisionError):
        async with running(Settings(data_dir=tmp_path, valkey_url=server.url), [ledger]):
            raise ZeroDivisionError
    assert ended == ["ledger"]


async def test_a_worker_that_stops_by_itself_stops_the_server(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def ends() -> None:
        raise ZeroDivisionError

    shutdown = Shutdown()
    async with running(Settings(data_dir=tmp_path, valkey_url=server.url), []) as plaza:
        async with background_worker(plaza, shutdown):
            pass
        assert not shutdown.requested.is_set(), "a cancelled worker is no reason to stop"
        monkeypatch.setattr(plaza.worker, "run", ends)
        async with within_time_limit(), background_worker(plaza, shutdown):
            await shutdown.requested.wait()
    assert shutdown.exit_status == 1
    assert "The worker stopped unexpectedly: ZeroDivisionError()" in capsys.readouterr().err
