"""Plaza with everything, on one server with SQLite and on a cluster with PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from plaza.app import Plaza, catalogues, running
from plaza.core.keyspace import Key, KeyMatch, Layout, use_layout
from plaza.core.settings import Settings
from plaza.demo.lifecycle import Demo
from tests.databases import database_with_tables, with_tables
from tests.servers import Cluster, Server
from tests.social.consistency import Keyspace, read_all

# Keys that time, a worker or a second start changes without any request.
CHANGING_KEYS = {
    "libraries",
    "job",
    "lease",
    "fence",
    "demo_runs",
    "hashtag_ranked",
    "ranking_due",
    "clg_turn",
    "row_state",
    "cached_row",
    "cached_page",
}


@pytest.fixture
async def settings(place: Server | Cluster, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Settings]:
    if isinstance(place, Server):
        yield Settings(data_dir=with_tables(tmp_path), valkey_url=place.url)
    else:
        async with database_with_tables(request.getfixturevalue("postgres")) as url:
            yield Settings(data_dir=tmp_path, valkey_url=place.url, database_url=url)
    use_layout(Layout.PLAIN)


@pytest.fixture
async def plaza(settings: Settings) -> AsyncIterator[Plaza]:
    async with running(settings) as plaza:
        yield plaza


@pytest.fixture
def demo(plaza: Plaza) -> Demo:
    return plaza.get(Demo)


class AllCatalogues:
    """The catalogues of all domains."""

    def __iter__(self) -> Iterator[tuple[str, Key]]:
        return (pair for catalogue in catalogues() for pair in catalogue)

    def match(self, name: str) -> KeyMatch | None:
        return next(filter(None, (catalogue.match(name) for catalogue in catalogues())), None)


async def read_all_keys(redis_client: Any) -> Keyspace:
    """Return all keys, read with a plain client. An undeclared key fails the test."""
    return await read_all(redis_client, AllCatalogues())


def without_changing_keys(keyspace: Keyspace) -> Keyspace:
    """Return the keys that must be equal after the same run, without those that time changes."""
    brief = {name for name, key in AllCatalogues() if key.ttl_seconds is not None and key.ttl_seconds <= 3_600}
    return {family: keys for family, keys in keyspace.items() if family not in CHANGING_KEYS | brief}
