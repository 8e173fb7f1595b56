"""All of Plaza on one server and on a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from plaza.app import Plaza
from tests.http_servers import all_of_plaza
from tests.servers import Cluster, Server


@pytest.fixture
async def plaza(place: Server | Cluster, tmp_path: Path) -> AsyncIterator[Plaza]:
    async with all_of_plaza(place, tmp_path) as plaza:
        yield plaza
