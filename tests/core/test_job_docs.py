"""The examples in docs/jobs.md and docs/sql.md run, and their numbers match the code."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from plaza import worker
from plaza.core import event_trimming, events, leases, sql, timers
from plaza.worker import Consumer, Timer

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["jobs.md", "sql.md"])
def test_the_examples_of_the_docs_run(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        module = ModuleType("example")
        monkeypatch.setitem(sys.modules, "example", module)
        exec(compile(block, page, "exec"), module.__dict__)


def test_the_numbers_in_the_docs_match_the_code() -> None:
    async def handle(_: Any) -> None:
        return None

    timer, consumer = Timer("a", 1, handle), Consumer("a", "b", handle)
    assert (leases.LEASE_SECONDS, timer.retry_seconds, timer.timeout_seconds) == (30, 5, 3600)
    assert (consumer.stale_seconds, consumer.retry_seconds, consumer.max_tries) == (60, 1, 5)
    assert (events.MAX_DEAD_EVENTS, event_trimming.EVERY_SECONDS, timers.POLL_SECONDS) == (10_000, 60, 15)
    assert worker.STOP_SECONDS == 5
    assert (sql.BUSY_WAIT_MS, sql.POOL_WAIT_SECONDS, sql.STATEMENT_SECONDS) == (5000, 10, 30)
    assert (sql.SQLITE_READERS, sql.POOL_SIZE + sql.POOL_OVERFLOW) == (8, 20)
    assert (sql.POSTGRES_SHARE, sql.SQLITE_READER_SHARE) == (4, 3)
