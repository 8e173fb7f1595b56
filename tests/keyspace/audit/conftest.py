"""All of Plaza on one server and on a cluster, with a small town in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from plaza.app import Plaza, running
from plaza.core.keys import Layout, use_layout
from plaza.core.settings import Settings
from plaza.keyspace.audit import Audits
from tests.keyspace.audit.loading import Town, load
from tests.servers import Cluster, Server


@pytest.fixture
async def plaza(place: Server | Cluster, tmp_path: Path) -> AsyncIterator[Plaza]:
    settings = Settings(data_dir=tmp_path, valkey_url=place.url, rate_limits=False)
    async with running(settings) as plaza:
        yield plaza
    use_layout(Layout.PLAIN)


@pytest.fixture
async def town(plaza: Plaza) -> Town:
    return await load(plaza)


@pytest.fixture
def audits(plaza: Plaza) -> Audits:
    return plaza.get(Audits)
