"""The export of an imported community is the same file, byte for byte."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from plaza.app import Plaza, running
from plaza.articles.service import Articles
from plaza.community.transfer import community_parts, complete_import, export_community
from plaza.core.keyspace import Layout, use_layout
from plaza.core.settings import Settings
from plaza.keyspace.audit import AUDIT, Audits
from plaza.shop.checkout import Checkout
from plaza.shop.items import Items
from plaza.shop.model import ItemChange, OrderChange
from plaza.shop.order_desk import OrderDesk
from plaza.social.jsonl_import import BadLine, ImportProgress, JsonlImporter
from plaza.social.model import Profile
from plaza.social.users import Users
from tests.databases import with_tables
from tests.keyspace.audit.sample_community import ADMIN, SampleCommunity, actor, load
from tests.postgres import Postgres
from tests.servers import Cluster, Server

DATA_KEY = "d" * 40


@pytest.fixture(autouse=True)
def layouts() -> Iterator[None]:
    yield
    use_layout(Layout.PLAIN)


async def add_what_the_sample_lacks(plaza: Plaza, community: SampleCommunity) -> None:
    await plaza.get(Articles).vote(actor("ana"), community.articles[0], None)  # the author's own vote
    await plaza.get(Users).suspend(ADMIN, "dora", on=True)
    await plaza.get(Users).update_profile(actor("ben"), "ben", Profile(bio="Hi", email="ben@example.org", ssn="123"))
    await plaza.get(Checkout).check_out(community.guest)
    _, order = await plaza.get(Checkout).check_out(community.token)
    await plaza.get(OrderDesk).change(order.id, OrderChange(state="paid", note="Call first."))
    await plaza.get(Items).change(order.items[0].id, ItemChange(withdrawn=True))


async def exported(plaza: Plaza, file: Path, *, private: bool = False) -> bytes:
    await export_community(community_parts(plaza, private=private), file, lambda kind, count: None)
    return _read_private(file)


def _read_private(file: Path) -> bytes:
    assert file.stat().st_mode & 0o777 == 0o600
    return file.read_bytes()


async def imported(plaza: Plaza, file: Path) -> ImportProgress:
    bad: list[BadLine] = []
    progress = await JsonlImporter(plaza.core.valkey, community_parts(plaza), bad.append).run(file)
    await complete_import(plaza, progress.kinds)
    assert not bad, bad
    return progress


@asynccontextmanager
async def empty_plaza(folder: Path, valkey_url: str, database_url: str = "") -> AsyncIterator[Plaza]:
    settings = Settings(data_dir=folder, valkey_url=valkey_url, database_url=database_url, data_key=DATA_KEY)
    async with running(replace(settings, rate_limits=False)) as plaza:
        yield plaza


async def test_one_server_to_a_cluster_with_another_database(
    server: Server, cluster: Cluster, postgres: Postgres, tmp_path: Path
) -> None:
    file = tmp_path / "community.jsonl"
    async with empty_plaza(with_tables(tmp_path), server.url) as plaza:
        await add_what_the_sample_lacks(plaza, await load(plaza))
        public = await exported(plaza, tmp_path / "public.jsonl")
        first = await exported(plaza, file, private=True)
    for text in (b"password_hash", b"$argon2id$", b"ben@example.org", b'"ssn":"123"'):
        assert text not in public, "only if asked for"
        assert text in first
    kinds = {json.loads(line)["type"] for line in first.splitlines()}
    async with (
        postgres.database() as url,
        empty_plaza(tmp_path, cluster.url, url) as plaza,
    ):
        assert kinds == {kind for part in community_parts(plaza) for kind in part.kinds}
        progress = await imported(plaza, file)
        assert progress.counts.keys() <= {"created", "updated", "unchanged"}
        assert await exported(plaza, tmp_path / "again.jsonl", private=True) == first
        again = await imported(plaza, file)
        assert again.counts.keys() == {"unchanged"}
        report = await plaza.get(Audits).run(AUDIT)
        assert report.clean, report.findings
