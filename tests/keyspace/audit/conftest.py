"""Plaza on one server and on a cluster, with a sample community."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from plaza.app import Plaza
from plaza.keyspace.audit import Audits
from tests.http_servers import all_of_plaza
from tests.keyspace.audit.sample_community import SampleCommunity, load
from tests.servers import Cluster, Server


@pytest.fixture
async def plaza(place: Server | Cluster, tmp_path: Path) -> AsyncIterator[Plaza]:
    async with all_of_plaza(place, tmp_path) as plaza:
        yield plaza


@pytest.fixture
async def community(plaza: Plaza) -> SampleCommunity:
    return await load(plaza)


@pytest.fixture
def audits(plaza: Plaza) -> Audits:
    return plaza.get(Audits)
