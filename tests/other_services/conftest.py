"""Plaza on one server and on a cluster, beside another service."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from plaza.challenges import invariants
from plaza.core import event_progress
from plaza.keyspace.audit import recheck, throttle
from tests.other_services.every_route import RunningPlaza, plaza_with_community
from tests.other_services.running import PlazaBesideOthers, plaza_beside_others
from tests.servers import Cluster, Server


@pytest.fixture
def audit_at_full_speed(audits_without_pauses: Callable[[], None]) -> None:
    """Audits without pauses, for tests in which no one writes meanwhile."""
    audits_without_pauses()


@pytest.fixture
def audits_without_pauses(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A function after which audits make no pauses."""

    def remove_pauses() -> None:
        monkeypatch.setattr(recheck, "PAUSE_SECONDS", 0.001)
        monkeypatch.setattr(recheck, "SHORT_PAUSE_SECONDS", 0.001)
        monkeypatch.setattr(recheck, "REPAIR_PAUSE_SECONDS", 0.001)
        monkeypatch.setattr(invariants, "PAUSE_SECONDS", 0.001)
        monkeypatch.setattr(event_progress, "MAX_IDLE_SECONDS", 0)
        monkeypatch.setattr(throttle, "TRAFFIC_PER_SECOND", 1_000_000)
        monkeypatch.setattr(throttle, "WINDOW_SECONDS", 0.0)

    return remove_pauses


@pytest.fixture
async def beside(place: Server | Cluster, tmp_path: Path, redis_client: Any) -> AsyncIterator[PlazaBesideOthers]:
    async with plaza_beside_others(place, tmp_path, redis_client) as beside:
        yield beside


@pytest.fixture
async def running(server: Server, tmp_path: Path) -> AsyncIterator[RunningPlaza]:
    """Plaza with a sample community, on one server."""
    async with plaza_with_community(server, tmp_path) as running:
        yield running
