"""Plaza put together, and taken apart again."""

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
from plaza.serve import Life, working
from tests.core.ledger import BOX_ITEMS, LIBRARY
from tests.servers import Cluster, Server
from tests.timeouts import within_time_limit


@pytest.fixture
def layouts() -> Iterator[None]:
    yield
    use_layout(Layout.PLAIN)


@pytest.mark.usefixtures("layouts")
async def test_what_a_cancelled_request_began_is_settled_before_the_connection_closes(
    cluster: Cluster, tmp_path: Path
) -> None:
    ledger = Domain(LIBRARY, [], lambda core: Parts([]))
    async with running(Settings(data_dir=tmp_path, valkey_url=cluster.url), [ledger]) as plaza:
        functions = plaza.core.functions
        await functions.run("ledger_put", [BOX_ITEMS("b1")], "b1", "s1", "nut", 3)
        request = asyncio.create_task(functions.run("ledger_put", [BOX_ITEMS("b2")], "b2", "s1", "nut", 3))
        for _ in range(100_000):  # every turn of the loop is looked at: settling takes only a few
            if functions.outbox.in_progress:
                break
            await asyncio.sleep(0)
        assert request.cancel()
    with contextlib.closing(cluster.redis_client()) as redis_client:
        assert redis_client.exists("box:{b2}:items")
        assert list(redis_client.scan_iter("pending:*")) == []


async def test_what_a_domain_has_running_ends_also_if_something_fails(server: Server, tmp_path: Path) -> None:
    ended: list[str] = []
    ledger = Domain(LIBRARY, [], lambda core: Parts([], on_close=[lambda: ended.append("ledger")]))
    with pytest.raises(ZeroDivisionError):
        async with running(Settings(data_dir=tmp_path, valkey_url=server.url), [ledger]):
            raise ZeroDivisionError
    assert ended == ["ledger"]


async def test_a_worker_that_ends_by_itself_ends_the_server(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def ends() -> None:
        raise ZeroDivisionError

    life = Life()
    async with running(Settings(data_dir=tmp_path, valkey_url=server.url), []) as plaza:
        async with working(plaza, life):
            pass
        assert not life.ending.is_set(), "one that is told to end is no reason"
        monkeypatch.setattr(plaza.worker, "run", ends)
        async with within_time_limit(), working(plaza, life):
            await life.ending.wait()
    assert life.status == 1
    assert "The worker has ended: ZeroDivisionError()" in capsys.readouterr().err
