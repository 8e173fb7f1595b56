"""Fixtures for all tests: real servers, started once and emptied between tests.

A test that uses `valkey` runs twice: on one server and on a cluster of three primaries. Take key names from the
catalogue (`POST_LIKES(post)`), since on a cluster they have braces. `redis_client` is a plain redis-py client of
the same server, which sees what other services see. A test that uses `sql` runs on SQLite and on PostgreSQL, in a new
database with all of Plaza's tables. A test for one of them only uses `server`, `cluster` or `postgres`.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import redis
import redis.asyncio
from hypothesis import HealthCheck

from plaza.core import sql as sql_module
from plaza.core.clock import ManualClock
from plaza.core.keyspace import Layout, use_layout
from plaza.core.settings import Settings
from plaza.core.sql import Sql
from plaza.core.valkey import Valkey
from tests.databases import database_with_tables, with_tables
from tests.documented_errors import watching
from tests.postgres import Postgres, running_postgres
from tests.s3_server import CREDENTIALS, S3Server, running_s3
from tests.servers import Cluster, Server, running_cluster, running_server
from tests.timeouts import TIME_LIMIT_MS, TIME_LIMIT_SECONDS, connect_for_test

TESTS = Path(__file__).parent

# Tests start about a hundred Plaza processes. Let them share compiled bytecode: compiling is a quarter of a start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# During collection of the tests: a garbage collection that runs Python code while a module is parsed makes CPython 3.11
# fail with a SystemError (gh-106905).
gc.disable()


def pytest_collection_finish() -> None:
    gc.enable()


# The files that take longest, most of them because they start processes. At the end they would leave a core idle.
RUN_FIRST = (
    "end_to_end/test_commands.py",
    "upgrades/test_upgrades.py",
    "browser/test_operator.py",
    "browser/test_pages.py",
    "other_services/test_odd_values.py",
    "demo/test_community.py",
    "examples/test_tutorials.py",
    "browser/test_live_script.py",
    "backup/test_storm.py",
    "openapi/test_fuzz.py",
    "packaging/test_wheel.py",
    "demo/test_first_start.py",
    "browser/test_tasks.py",
    "browser/test_sign_in_methods.py",
    "browser/test_docs_page.py",
    "browser/test_pictures.py",
    "browser/test_lists.py",
    "other_services/test_odd_fields.py",
    "other_services/test_social_interleaving.py",
    "sdk/test_python_client.py",
    "sdk/test_typescript_client.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    first = {TESTS / name: n for n, name in enumerate(RUN_FIRST)}
    items.sort(key=lambda item: first.get(item.path, len(first)))


# Examples are the same in every run, on any machine. `pytest --hypothesis-profile=explore` searches for new ones.
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
hypothesis.settings.register_profile("explore", deadline=None, database=None, suppress_health_check=SLOW)
hypothesis.settings.register_profile("plaza", hypothesis.settings.get_profile("explore"), derandomize=True)
hypothesis.settings.load_profile("plaza")


# A test does not start this shortly before midnight (UTC), when challenges end, days are counted and salts change.
LATE_SECONDS = 60


@pytest.fixture(autouse=True)
def within_one_day() -> None:
    """A test starts and ends on the same day: shortly before midnight it waits for the next day."""
    left = 86_400 - time.time() % 86_400
    if left < LATE_SECONDS:
        time.sleep(left)


@pytest.fixture(autouse=True)
def documented_errors() -> Iterator[None]:
    """Every error response of a route, in any test, is one that the OpenAPI document lists for it."""
    with watching() as undocumented:
        yield
    assert not undocumented, "Add these to `raises` of their routes:\n" + "\n".join(undocumented)


@pytest.fixture
def busy_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer SQL waits, for tests with a hundred concurrent writers on a slow disk."""
    monkeypatch.setattr(sql_module, "POOL_WAIT_SECONDS", TIME_LIMIT_SECONDS)
    monkeypatch.setattr(sql_module, "BUSY_WAIT_MS", round(TIME_LIMIT_MS))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """The clock of the Plaza that a test opens. It stands still, so that no day and no five minutes end meanwhile."""
    clock = ManualClock(time.time_ns() // 1_000_000)
    monkeypatch.setattr("plaza.app.Clock", lambda: clock)
    return clock


@pytest.fixture(scope="session")
def session_server() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.fixture
def server(session_server: Server) -> Server:
    """One empty Valkey server."""
    with session_server.redis_client() as client:
        client.flushall()
        client.execute_command("FUNCTION", "FLUSH")
    return session_server


@pytest.fixture(scope="session")
def session_cluster() -> Iterator[Cluster]:
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(session_cluster: Cluster) -> Cluster:
    """An empty cluster of three primaries."""
    session_cluster.flush()
    return session_cluster


@pytest.fixture(params=["server", "cluster"])
def place(request: pytest.FixtureRequest) -> Server | Cluster:
    """The Valkey under test: one server, then a cluster."""
    found: Server | Cluster = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def redis_client(place: Server | Cluster) -> AsyncIterator[Any]:
    """An asyncio redis-py client, which sees what other services see."""
    client: Any
    if isinstance(place, Cluster):
        client = redis.asyncio.RedisCluster(host="127.0.0.1", port=place.nodes[0].port, decode_responses=True)
    else:
        client = redis.asyncio.Redis(port=place.port, decode_responses=True)
    yield client
    await client.aclose()


@pytest.fixture
async def valkey(place: Server | Cluster) -> AsyncIterator[Valkey]:
    """Plaza's connection to `place`, with key names in its layout."""
    use_layout(Layout.BRACES if isinstance(place, Cluster) else Layout.PLAIN)
    valkey = await connect_for_test(place.url)
    yield valkey
    await valkey.close()
    use_layout(Layout.PLAIN)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
async def empty_sql_settings(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Settings]:
    """Settings with a database that has no tables: SQLite, then PostgreSQL."""
    if request.param == "sqlite":
        yield Settings(data_dir=tmp_path)
    else:
        postgres: Postgres = request.getfixturevalue("postgres")
        async with postgres.database() as url:
            yield Settings(data_dir=tmp_path, database_url=url)


@pytest.fixture(params=["sqlite", "postgresql"])
async def sql_settings(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Settings]:
    """Settings with a database that has Plaza's tables, all empty: SQLite, then PostgreSQL."""
    if request.param == "sqlite":
        yield Settings(data_dir=with_tables(tmp_path))
    else:
        async with database_with_tables(request.getfixturevalue("postgres")) as url:
            yield Settings(data_dir=tmp_path, database_url=url)


@pytest.fixture
async def sql(sql_settings: Settings, busy_disk: None) -> AsyncIterator[Sql]:
    """A database with Plaza's tables, all empty."""
    database = await Sql.open(sql_settings)
    yield database
    await database.close()


@pytest.fixture(scope="session")
def session_s3() -> Iterator[S3Server]:
    with running_s3() as server:
        yield server


@pytest.fixture
def bucket(session_s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of an empty bucket, with credentials in the environment."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    return session_s3.create_bucket()
