"""A backup in the middle of concurrent writes is restored to a community whose audit is clean."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from plaza.app import Plaza, running
from plaza.backup.creation import BackupRun
from plaza.backup.restoration import RestoreRun
from plaza.backup.snapshots import BackupDirectory
from plaza.core import event_progress
from plaza.core.embedded_valkey import EmbeddedValkey
from plaza.core.invariants import NOT_COMPARED
from plaza.core.keyspace import Layout, use_layout
from plaza.core.settings import Settings
from plaza.keyspace.audit import AUDIT, Audits
from plaza.keyspace.audit.report import FindingGroup
from plaza.social.posts import Posts
from tests.backup.storm import STOCK, BackupStorm, check_out_open_carts, stock_and_orders
from tests.databases import with_tables
from tests.postgres import Postgres
from tests.servers import Cluster, Server


@pytest.fixture(autouse=True)
def layouts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(event_progress, "MAX_IDLE_SECONDS", 0)  # no worker handles events
    yield
    use_layout(Layout.PLAIN)


async def back_up_in_a_storm(settings: Settings, directory: BackupDirectory) -> list[str]:
    """Write, back up twice meanwhile, and go on writing. Returns posts that were there before the second backup."""
    async with running(settings) as plaza:
        storm = BackupStorm(plaza)
        async with storm.running() as others:
            await storm.wait(others, 100)
            await BackupRun(plaza, directory).run()
            await storm.wait(others, 50)
            posts = list(storm.posts)
            await BackupRun(plaza, directory).run()
            await storm.wait(others, 50)
    return posts


def require_clean(findings: list[FindingGroup]) -> None:
    """What follows from events that no worker has handled yet is compared later."""
    assert {group.rule for group in findings} <= {NOT_COMPARED}, findings


async def require_consistent(plaza: Plaza, posts: list[str]) -> None:
    require_clean((await plaza.get(Audits).run(AUDIT)).groups)
    assert posts
    for id in posts:
        assert (await plaza.get(Posts).get(None, id)).id == id
    assert await stock_and_orders(plaza) == STOCK
    await check_out_open_carts(plaza, await plaza.core.valkey.call("ZRANGE", "recent:", 0, -1))
    assert await stock_and_orders(plaza) == STOCK, "no cart is ordered twice"


async def test_one_server_with_sqlite_and_pictures(server: Server, tmp_path: Path) -> None:
    directory = BackupDirectory(tmp_path / "backups")
    source = Settings(data_dir=with_tables_in(tmp_path / "source"), valkey_url=server.url, rate_limits=False)
    posts = await back_up_in_a_storm(source, directory)
    target = Settings(data_dir=tmp_path / "target", rate_limits=False)
    restored = await RestoreRun(target, directory).run()
    require_clean(restored.audit.left)
    async with (
        EmbeddedValkey(target.data_dir) as valkey,
        running(replace(target, valkey_url=valkey.url)) as plaza,
    ):
        await require_consistent(plaza, posts)


async def test_a_cluster_with_postgresql_and_pictures_in_a_bucket(
    cluster: Cluster, postgres: Postgres, bucket: str, tmp_path: Path
) -> None:
    directory = BackupDirectory(tmp_path / "backups")
    async with postgres.database() as url:
        settings = Settings(
            data_dir=tmp_path, valkey_url=cluster.url, database_url=url, media_url=bucket, rate_limits=False
        )
        posts = await back_up_in_a_storm(settings, directory)
        restored = await RestoreRun(settings, directory).run(replaces=True)
        require_clean(restored.audit.left)
        async with running(settings) as plaza:
            await require_consistent(plaza, posts)


def with_tables_in(data_dir: Path) -> Path:
    data_dir.mkdir()
    return with_tables(data_dir)
