"""Limits of the proxy, and its errors while Valkey is not available."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from plaza.app import catalogues
from plaza.core import rate_limits
from plaza.core.functions import Functions
from plaza.core.http.app import make_app
from plaza.core.http.app_options import AppOptions
from plaza.core.rate_limits import Limiter, Policy, Quota
from plaza.core.settings import Settings
from plaza.core.valkey import Valkey
from plaza.keyspace.proxy import execution, routes, service
from plaza.keyspace.proxy.service import Proxy
from plaza.social import keys as social
from tests.http_servers import client_of
from tests.keyspace.proxy.conftest import AUTH, ENCRYPTION, KEY, SETTINGS, ProxyClient, token
from tests.servers import Cluster, Server, running_server
from tests.timeouts import connect_for_test
from tests.waiting import eventually

POLICIES = {
    "proxy": Policy(user=Quota(6, 600), address=Quota(100, 60)),
    "write": Policy(user=Quota(2, 600), address=Quota(100, 60)),
}


@pytest.mark.usefixtures("community")
async def test_requests_are_limited_and_writes_more_strictly(valkey: Valkey) -> None:
    functions = Functions(valkey, [execution.LIBRARY, rate_limits.LIBRARY])
    await functions.load()
    limiter = Limiter(functions, policies=POLICIES)
    settings = Settings(jwt_secret=SETTINGS.jwt_secret, api_key=KEY)
    app = make_app(
        [routes.route],
        {Proxy: Proxy(functions, limiter, catalogues(), ENCRYPTION)},
        auth=AUTH,
        settings=settings,
        options=AppOptions(limiter=limiter),
    )
    write, read = ["HSET", "user:me", "a", "b"], ["HGET", "user:me", "a"]
    async with client_of(app) as http:
        ana = ProxyClient(http, token())
        responses = [await ana.post("/", words) for words in (write, write, write, read, read, read, read)]
        assert [response.status_code for response in responses] == [200, 200, 429, 200, 200, 200, 429]
        for refused in (responses[2], responses[-1]):
            assert refused.json()["error"].startswith("ERR Too many requests")
            assert int(refused.headers["retry-after"]) > 0
        server = ProxyClient(http, KEY)
        assert [await server.run("HGET", "user:ana", "a") for _ in range(8)] == ["b"] * 8  # the API key has no limit


def count_round_trips(response: httpx.Response) -> int:
    """From the Server-Timing header."""
    timing = re.search(r'desc="(\d+) round trip', response.headers["server-timing"])
    assert timing is not None
    return int(timing[1])


@pytest.mark.usefixtures("community")
async def test_refused_commands_cost_no_round_trip_and_all_others_one(ana: ProxyClient) -> None:
    refused = await ana.post("/pipeline", [["GET", "auth:ana"], ["KEYS", "*"], ["HGETALL", "user:bob"], ["PING"]])
    assert count_round_trips(refused) == 0
    feed: list[Any] = [["HGETALL", "user:me"], ["ZRANGE", "explore:feed", 0, -1], ["SCARD", "user:bob:followers"]]
    assert count_round_trips(await ana.post("/pipeline", feed * 20)) == 1
    assert count_round_trips(await ana.post("/", ["HSET", "user:me", "a", "b"])) == 1


async def test_functions_are_loaded_again_after_a_flush(ana: ProxyClient, place: Server | Cluster) -> None:
    for node in place.nodes if isinstance(place, Cluster) else [place]:
        with node.redis_client() as redis_client:
            redis_client.execute_command("FUNCTION", "FLUSH")
    assert await ana.run("HSET", "user:me", "a", "b") == 1
    assert len(await ana.run("SMEMBERS", "user:bob:followers")) == 2


async def test_a_request_fails_in_time_while_valkey_hangs_or_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running_server() as server:
        async with await connect_for_test(server.url) as valkey:
            functions = Functions(valkey, [execution.LIBRARY])
            await functions.load()
            proxy = Proxy(functions, Limiter(functions, on=False), catalogues(), ENCRYPTION)
            app = make_app([routes.route], {Proxy: proxy}, auth=AUTH, settings=SETTINGS)
            async with client_of(app) as http:
                await _hang(server, ProxyClient(http, token()), monkeypatch)
                await _fill(server, ProxyClient(http, token()))


async def _hang(server: Server, ana: ProxyClient, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await ana.run("ZCARD", "explore:feed") == 0
    server.pause()
    with monkeypatch.context() as patch:
        patch.setattr(service, "TIMEOUT_SECONDS", 0.2)
        for path, body in (("/", ["ZCARD", "explore:feed"]), ("/multi-exec", [["ZCARD", "explore:feed"]])):
            away: httpx.Response = await ana.post(path, body)
            assert (away.status_code, away.json()["error"]) == (503, "ERR Valkey is unavailable or busy.")
            assert away.headers["retry-after"]
    server.resume()
    assert await ana.run("ZCARD", "explore:feed") == 0


async def _fill(server: Server, ana: ProxyClient) -> None:
    write = ["HSET", "user:me", "a", "b"]
    with server.redis_client() as redis_client:
        redis_client.hset("user:ana", "username", "ana")
        redis_client.config_set("maxmemory", 1)
    full = await ana.post("/", write)
    assert (full.status_code, full.json()["error"]) == (503, "ERR Valkey is unavailable or busy.")
    name, error = (await ana.post("/", [["HGET", "user:me", "username"], write])).json()
    assert name == "ana"
    assert error.startswith("OOM ")


COSTLY_PATTERN = "*" + "a" * 62 + "*"


@pytest.mark.usefixtures("community")
async def test_the_work_of_a_request_is_bounded(ana: ProxyClient, valkey: Valkey) -> None:
    scan = ["ZSCAN", "explore:feed", 0, "MATCH", COSTLY_PATTERN, "COUNT", 1000]
    before = await calls_on(valkey, "zscan")
    results = (await ana.post("/pipeline", [["PING"], *[scan] * 255])).json()
    assert results[0] == {"result": "PONG"}
    refused = [result for result in results if "too much work" in result.get("error", "")]
    assert len(refused) == 255 - (await calls_on(valkey, "zscan") - before) > 250
    assert "too much work" in (await ana.post("/multi-exec", [scan] * 256)).text


async def calls_on(valkey: Valkey, command: str) -> int:
    """The number of times that Valkey has run a command."""
    total = 0
    for node in valkey.primaries():
        stats = str(await node.call("INFO", "commandstats"))
        found = re.search(rf"cmdstat_{command}:calls=(\d+)", stats)
        total += int(found[1]) if found else 0
    return total


@pytest.mark.parametrize("pattern", ["[" + "a" * 50 + "]*", "*a*a*", "\\a*", "a" * 65])
@pytest.mark.usefixtures("community")
async def test_costly_patterns_are_refused(ana: ProxyClient, pattern: str) -> None:
    assert str(await ana.run("ZSCAN", "explore:feed", 0, "MATCH", pattern)).startswith("ERR a pattern has")


@pytest.fixture
async def limited(valkey: Valkey, community: None) -> AsyncIterator[ProxyClient]:
    """A client whose user has a quota of twelve requests."""
    functions = Functions(valkey, [execution.LIBRARY, rate_limits.LIBRARY])
    await functions.load()
    limiter = Limiter(functions, policies={**POLICIES, "proxy": Policy(user=Quota(12, 600), address=Quota(100, 60))})
    services: dict[type, Any] = {Proxy: Proxy(functions, limiter, catalogues(), ENCRYPTION)}
    settings = Settings(jwt_secret=SETTINGS.jwt_secret)
    app = make_app([routes.route], services, auth=AUTH, settings=settings, options=AppOptions(limiter=limiter))
    async with client_of(app) as http:
        yield ProxyClient(http, token())


SCAN = ["ZSCAN", "explore:feed", 0, "COUNT", 1000]


async def test_a_request_that_is_much_work_counts_as_several(limited: ProxyClient) -> None:
    assert (await limited.post("/", SCAN)).status_code == 200
    assert (await limited.post("/pipeline", [SCAN] * 8)).status_code == 200
    assert (await limited.post("/pipeline", [SCAN] * 2)).status_code == 429
    assert (await limited.post("/multi-exec", [SCAN] * 2)).status_code == 429


@pytest.mark.parametrize("path", ["/pipeline", "/multi-exec", "/", "/redis/write"])
async def test_work_over_the_limit_is_refused_before_it_is_sent(
    limited: ProxyClient, valkey: Valkey, path: str
) -> None:
    before = await calls_on(valkey, "zscan")
    responses = await asyncio.gather(*(limited.post(path, [SCAN] * 4) for _ in range(5)))
    assert {response.status_code for response in responses} == {200, 429}
    assert await calls_on(valkey, "zscan") - before <= 12


async def test_a_long_result_counts_before_it_is_read(limited: ProxyClient, valkey: Valkey, redis_client: Any) -> None:
    await redis_client.sadd(social.USER_FOLLOWERS("bob"), *(f"fan{i}" for i in range(9_000)))
    read = ["SMEMBERS", "user:bob:followers"]
    before = await calls_on(valkey, "smembers")
    responses = await asyncio.gather(*(limited.post("/", read) for _ in range(4)))
    assert {response.status_code for response in responses} == {200, 429}
    (whole,) = {len(response.json()["result"]) for response in responses if response.status_code == 200}
    assert whole == 9_002
    # Four requests, and four more for the first result: the rest pays for one more at most.
    assert await calls_on(valkey, "smembers") - before <= 2


async def test_a_long_result_that_is_refused_leaves_the_results_of_writes(
    limited: ProxyClient, redis_client: Any
) -> None:
    await redis_client.sadd(social.USER_FOLLOWERS("bob"), *(f"fan{i}" for i in range(9_000)))
    increment, read = ["HINCRBY", "user:me", "visits", 1], ["SMEMBERS", "user:bob:followers"]
    for _ in range(2):
        assert (await limited.post("/", read)).status_code == 200
    written, refused = (await limited.post("/pipeline", [increment, read])).json()
    assert written == {"result": 1}
    assert refused["error"].startswith("ERR Too many requests")
    assert (await limited.post("/", read)).status_code == 429


async def test_long_and_short_results_keep_their_places(ana: ProxyClient, redis_client: Any) -> None:
    await redis_client.sadd(social.USER_FOLLOWERS("ana"), *(f"fan{i}" for i in range(3_000)))
    commands = [["PING"], ["SMEMBERS", "user:ana:followers"], ["GET", "article:"], ["SMEMBERS", "user:bob:followers"]]
    ping, long, absent, short = (await ana.post("/", commands)).json()
    assert (ping, len(long), absent, sorted(short)) == ("PONG", 3_002, None, ["cia", "dee"])


async def test_a_scan_of_a_small_hash_counts_all_its_elements(
    ana: ProxyClient, valkey: Valkey, redis_client: Any
) -> None:
    await redis_client.hset(social.USER("ana"), mapping={f"{i:a>64}": 1 for i in range(100)})
    scan = ["HSCAN", "user:me", 0, "MATCH", COSTLY_PATTERN, "COUNT", 1]
    before = await calls_on(valkey, "hscan")
    results = (await ana.post("/pipeline", [scan] * 256)).json()
    sent = await calls_on(valkey, "hscan") - before
    assert sent == sum("result" in result for result in results) <= service.MAX_WORK // 1_000


async def test_a_field_or_key_that_is_named_often_is_read_once(ana: ProxyClient, valkey: Valkey) -> None:
    value = "x" * 4_000
    await ana.run("HSET", "user:me", "bio", value[:500], "notes", value)
    before = await bytes_sent_by(valkey)
    assert "too large" in str(await ana.run("HMGET", "user:me", *["notes"] * 4_000))
    assert await ana.run("HMGET", "user:me", "notes", "bio", "none", "notes") == [value, value[:500], None, value]
    assert await ana.run("EXISTS", *["user:me"] * 1_000, "user:none:posts", "user:me:followers") == 1_001
    assert await bytes_sent_by(valkey) - before < 100_000


async def bytes_sent_by(valkey: Valkey) -> int:
    """The bytes that Valkey has sent to its clients."""
    stats = [str(await node.call("INFO", "stats")) for node in valkey.primaries()]
    found = [re.search(r"total_net_output_bytes:(\d+)", text) for text in stats]
    return sum(int(match[1]) for match in found if match)


@pytest.mark.usefixtures("community")
async def test_work_that_was_not_sent_before_a_timeout_is_never_sent(
    ana: ProxyClient, place: Server | Cluster, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "TIMEOUT_SECONDS", 0.3)
    scan = ["ZSCAN", "explore:feed", 0, "COUNT", 1000]
    before = await calls_on(valkey, "zscan")
    nodes = place.nodes if isinstance(place, Cluster) else [place]
    with ExitStack() as stack:
        clients = [stack.enter_context(node.redis_client()) for node in nodes]
        for client in clients:
            client.ping()  # connected before the first pause: on a busy machine that takes long
        for client in clients:
            client.execute_command("CLIENT", "PAUSE", 2000, "ALL")
    assert (await ana.post("/pipeline", [scan] * 19)).status_code == 503
    await eventually(lambda: answers(valkey))
    assert await calls_on(valkey, "zscan") - before <= service.WORK_PER_BATCH // 1000


async def answers(valkey: Valkey) -> bool:
    return all([await node.call("PING") for node in valkey.primaries()])
