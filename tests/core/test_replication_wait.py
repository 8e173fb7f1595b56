"""`PLAZA_WAIT_REPLICAS`: a write is acknowledged when replicas have it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from plaza.app import running
from plaza.core.errors import SettingError
from plaza.core.replication_wait import NotReplicated, ReplicationWait
from plaza.core.settings import Settings
from plaza.core.valkey import Valkey
from plaza.social.keys import POST
from tests.databases import with_tables
from tests.http_servers import client_of
from tests.servers import SYNC_AT_ONCE, Cluster, running_server
from tests.waiting import eventually


async def test_a_write_is_acknowledged_when_replicas_have_it_and_is_503_otherwise(tmp_path: Path) -> None:
    with (
        running_server(*SYNC_AT_ONCE) as primary,
        running_server("--replicaof", "127.0.0.1", str(primary.port)) as replica,
        replica.redis_client() as follower,
    ):
        settings = Settings(data_dir=with_tables(tmp_path), valkey_url=primary.url, rate_limits=False, wait_replicas=1)
        async with running(settings) as plaza, client_of(plaza.app) as http:

            async def create(path: str, body: dict[str, str], **headers: str) -> Any:
                """Repeat a request until it is acknowledged: a busy machine may take longer than it waits."""
                response = await http.post(path, json=body, headers={"Idempotency-Key": "a-key", **headers})
                assert response.status_code in (201, 503), response.text
                return response.json() if response.status_code == 201 else None

            account = {"username": "ana", "password": "a long pass phrase of ana"}
            registered = await eventually(lambda: create("/auth/register", account))
            token = {"Authorization": f"Bearer {registered['access_token']}"}
            replica.pause()
            refused = await http.post("/posts", json={"content": "Hi"}, headers={"Idempotency-Key": "a-key", **token})
            assert (refused.status_code, refused.json()["code"]) == (503, "not_replicated")
            assert (await http.get("/feed/explore")).status_code == 200, "reads wait for nothing"
            replica.resume()
            post = await eventually(lambda: create("/posts", {"content": "Hi"}, **token))
            assert follower.exists(POST(post["id"]))
            (listed,) = (await http.get("/feed/explore")).json()["posts"]
            assert listed["post"]["id"] == post["id"]


@pytest.mark.parametrize("place", ["cluster"], indirect=True)
async def test_all_that_wait_share_one_wait_of_each_primary(valkey: Valkey, cluster: Cluster) -> None:
    waits = ReplicationWait(valkey, 0)
    for node in cluster.nodes:
        with node.redis_client() as client:
            client.config_resetstat()
    await asyncio.gather(*(waits.confirm() for _ in range(100)))
    for node in cluster.nodes:
        with node.redis_client() as client:
            counts = client.info("commandstats")
            assert counts["cmdstat_set"]["calls"] == counts["cmdstat_wait"]["calls"]
            assert 1 <= counts["cmdstat_wait"]["calls"] <= 3
    waits.close()
    without_replicas = ReplicationWait(valkey, 1, wait_ms=10)
    with pytest.raises(NotReplicated):
        await without_replicas.confirm()
    without_replicas.close()


def test_the_embedded_valkey_has_no_replicas_to_wait_for() -> None:
    with pytest.raises(SettingError, match="PLAZA_WAIT_REPLICAS"):
        Settings.from_env({"PLAZA_WAIT_REPLICAS": "1"})
