"""How much one may ask of the proxy, and what it says while Valkey is away."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

from plaza.app import catalogues
from plaza.core import rate_limits
from plaza.core.functions import Functions
from plaza.core.http.app import make_app
from plaza.core.rate_limits import Limiter, Policy, Quota
from plaza.core.settings import Settings
from plaza.core.valkey import Valkey
from plaza.keyspace.proxy import execution, routes, service
from plaza.keyspace.proxy.service import Proxy
from tests.http_servers import client_of
from tests.keyspace.proxy.conftest import AUTH, KEY, SETTINGS, Door, token
from tests.servers import Cluster, Server, running_server
from tests.timeouts import connect_for_test

POLICIES = {
    "proxy": Policy(user=Quota(6, 600), address=Quota(100, 60)),
    "write": Policy(user=Quota(2, 600), address=Quota(100, 60)),
}


@pytest.mark.usefixtures("community")
async def test_calls_are_limited_and_writes_among_them_more(valkey: Valkey) -> None:
    functions = Functions(valkey, [execution.LIBRARY, rate_limits.LIBRARY])
    await functions.load()
    limiter = Limiter(functions, policies=POLICIES)
    settings = Settings(jwt_secret=SETTINGS.jwt_secret, api_key=KEY)
    app = make_app(
        [routes.route],
        {Proxy: Proxy(functions, limiter, catalogues())},
        auth=AUTH,
        settings=settings,
        limiter=limiter,
    )
    write, read = ["HSET", "user:me", "a", "b"], ["HGET", "user:me", "a"]
    async with client_of(app) as http:
        ana = Door(http, token())
        answers = [await ana.post("/", words) for words in (write, write, write, read, read, read, read)]
        assert [answer.status_code for answer in answers] == [200, 200, 429, 200, 200, 200, 429]
        for refused in (answers[2], answers[-1]):
            assert refused.json()["error"].startswith("ERR Too many requests")
            assert int(refused.headers["retry-after"]) > 0
        server = Door(http, KEY)
        assert [await server.ask("HGET", "user:ana", "a") for _ in range(8)] == ["b"] * 8  # our own servers


def count_round_trips(answer: httpx.Response) -> int:
    """As the answer itself says."""
    timing = re.search(r'desc="(\d+) round trip', answer.headers["server-timing"])
    assert timing is not None
    return int(timing[1])


@pytest.mark.usefixtures("community")
async def test_what_is_refused_costs_no_round_trip_and_the_rest_of_a_call_one(ana: Door) -> None:
    refused = await ana.post("/pipeline", [["GET", "auth:ana"], ["KEYS", "*"], ["HGETALL", "user:bob"], ["PING"]])
    assert count_round_trips(refused) == 0
    feed: list[Any] = [["HGETALL", "user:me"], ["ZRANGE", "explore:feed", 0, -1], ["SCARD", "user:bob:followers"]]
    assert count_round_trips(await ana.post("/pipeline", feed * 20)) == 1
    assert count_round_trips(await ana.post("/", ["HSET", "user:me", "a", "b"])) == 1


async def test_a_server_that_was_emptied_of_functions_gets_them_again(ana: Door, place: Server | Cluster) -> None:
    for node in place.nodes if isinstance(place, Cluster) else [place]:
        with node.redis_client() as redis_client:
            redis_client.execute_command("FUNCTION", "FLUSH")
    assert await ana.ask("HSET", "user:me", "a", "b") == 1
    assert len(await ana.ask("SMEMBERS", "user:bob:followers")) == 2


async def test_while_valkey_hangs_or_is_full_a_call_ends_in_its_time_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running_server() as server:
        async with await connect_for_test(server.url) as valkey:
            functions = Functions(valkey, [execution.LIBRARY])
            await functions.load()
            proxy = Proxy(functions, Limiter(functions, on=False), catalogues())
            app = make_app([routes.route], {Proxy: proxy}, auth=AUTH, settings=SETTINGS)
            async with client_of(app) as http:
                await _hang(server, Door(http, token()), monkeypatch)
                await _fill(server, Door(http, token()))


async def _hang(server: Server, ana: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await ana.ask("ZCARD", "explore:feed") == 0
    server.pause()
    with monkeypatch.context() as hasty:
        hasty.setattr(service, "SECONDS", 0.2)
        for path, body in (("/", ["ZCARD", "explore:feed"]), ("/multi-exec", [["ZCARD", "explore:feed"]])):
            away: httpx.Response = await ana.post(path, body)
            assert (away.status_code, away.json()["error"]) == (503, "ERR Valkey is away or busy.")
            assert away.headers["retry-after"]
    server.resume()
    assert await ana.ask("ZCARD", "explore:feed") == 0


async def _fill(server: Server, ana: Door) -> None:
    write = ["HSET", "user:me", "a", "b"]
    with server.redis_client() as redis_client:
        redis_client.hset("user:ana", "username", "ana")
        redis_client.config_set("maxmemory", 1)
    full = await ana.post("/", write)
    assert (full.status_code, full.json()["error"]) == (503, "ERR Valkey is away or busy.")
    name, error = (await ana.post("/", [["HGET", "user:me", "username"], write])).json()
    assert name == "ana"
    assert error.startswith("OOM ")
