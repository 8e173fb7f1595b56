"""The health page while a node of the cluster is down: it shows what is left, and which node does not respond."""

from __future__ import annotations

import signal
import time
from functools import partial
from pathlib import Path

from plaza.core.auth import API
from plaza.core.health_history import _RESOLUTIONS
from plaza.core.keys import JOB, LEASE
from plaza.core.keyspace import Layout, use_layout
from plaza.core.valkey.slots import key_slot
from plaza.keyspace.audit_keys import AUDIT_LAST
from plaza.social.users import Users
from tests.http_servers import all_of_plaza, serving
from tests.pages.conftest import PageClient
from tests.servers import SLOTS, Server, running_cluster
from tests.waiting import eventually

HEALTH = "/app/operator/health"


def lacks_slots(node: Server) -> bool:
    with node.redis_client() as client:
        return int(client.cluster("INFO")["cluster_slots_ok"]) < SLOTS


async def test_the_health_page_says_which_node_does_not_respond(tmp_path: Path) -> None:
    use_layout(Layout.BRACES)
    now = int(time.time())
    keys = (JOB("audit"), LEASE("audit"), AUDIT_LAST(), *(scale.key_at(now) for scale in _RESOLUTIONS.values()))
    with running_cluster(3, of_last={key_slot(key) for key in keys}) as cluster:
        for node in cluster.nodes:
            with node.redis_client() as client:
                client.config_set("cluster-require-full-coverage", "no")
                client.config_set("cluster-node-timeout", 1_000)
        async with all_of_plaza(cluster, tmp_path) as plaza, serving(plaza.app) as url, PageClient(url) as ana:
            await ana.sign_up("ana")
            await plaza.get(Users).set_role(API, "ana", "admin")
            whole = await ana.get(HEALTH)
            assert whole.status_code == 200
            for shown in (", 16384 of 16384 slots ok, 3 nodes", "0 replicas", "owners in Valkey to settle"):
                assert shown in whole.text
            assert "not complete" not in whole.text
            lost = cluster.nodes[2]
            lost.stop(signal.SIGKILL)
            for node in cluster.nodes[:2]:
                await eventually(partial(lacks_slots, node))
            page = await ana.get(HEALTH)
            assert page.status_code == 200, page.text
            for shown in (
                "The cluster is not complete",
                f">port {lost.port}: It does not respond.",
                "Parts of this page are missing",
                "The history cannot be read now.",
            ):
                assert shown in page.text
            assert 'data-figure="requestsPerSecond">0<' not in page.text, "without the history, of this machine"
