"""What callers of the proxy can and cannot read and write."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Final

import httpx
import pytest

from plaza.app import catalogues
from plaza.articles import keys as articles
from plaza.core import rate_limits
from plaza.core.auth import Actor
from plaza.core.functions import Functions
from plaza.core.rate_limits import Limiter
from plaza.core.sequences import pairs
from plaza.keyspace.proxy import execution
from plaza.keyspace.proxy.service import Proxy
from plaza.social import keys as social
from tests.core.relay import Relay
from tests.keyspace.proxy.conftest import BANNED, ENCRYPTION, POST, SECRET, ProxyClient, token
from tests.servers import Server
from tests.timeouts import connect_for_test


async def test_own_keys_are_readable_and_me_is_the_caller(ana: ProxyClient) -> None:
    mine = await ana.run("HGETALL", "user:me")
    profile = dict(zip(mine[::2], mine[1::2], strict=True))
    assert profile["email"] == "ana@private.example"
    assert profile["custom"] == "ana's field"
    assert SECRET not in mine
    assert await ana.run("hget", "user:AUTH", "username") == "ana"
    assert await ana.run("ZRANGE", "user:me:bookmarked", 0, -1, "WITHSCORES") == [POST, "5"]
    assert await ana.run("ZRANGE", "user:ana:blocked", 0, 10) == ["anas-enemy"]
    assert await ana.run("HKEYS", "user:me") == mine[::2]
    assert await ana.run("HVALS", "user:me") == mine[1::2]
    assert await ana.run("HSCAN", "user:me", 0, "COUNT", 1000) == ["0", mine]
    assert await ana.run("HSCAN", "user:me", 0, "MATCH", "p*", "COUNT", 1000, "NOVALUES") == ["0", ["postCount"]]
    assert "password_hash" not in profile
    assert (await ana.run("HGET", "user:menace", "bio")) is None  # `me` is only the whole part of a name


async def test_public_keys_are_readable_without_the_fields_for_admins(
    ana: ProxyClient, api_key_client: ProxyClient
) -> None:
    assert await ana.run("ZREVRANGE", "explore:feed", 0, 9, "WITHSCORES") == [POST, "1700000000123"]
    assert sorted(await ana.run("SMEMBERS", "user:bob:followers")) == ["cia", "dee"]
    assert await ana.run("SMISMEMBER", f"post:{POST}:likes", "cia", "eve") == [1, 0]
    assert await ana.run("HMGET", f"post:{POST}", "content", "likesCount") == ["words of 1111", "2"]
    assert "user_version" not in await ana.run("HGETALL", f"post:{POST}")
    assert "user_version" in await api_key_client.run("HGETALL", f"post:{POST}")
    assert await ana.run("EXISTS", "explore:feed", f"post:{POST}", "explore:feed", "users:models") == 3
    assert await ana.run("MGET", "article:", "inv:7") == [None, None]
    assert await ana.run("HLEN", "explore:feed") == "WRONGTYPE Operation against a key holding the wrong kind of value"


async def test_voters_are_named_to_admins_only(
    ana: ProxyClient, api_key_client: ProxyClient, http: httpx.AsyncClient, redis_client: Any
) -> None:
    await redis_client.sadd(articles.ARTICLE_UP(7), "user:ana", "user:bob")
    for read in (
        ["SMEMBERS"],
        ["SSCAN", 0],
        ["SISMEMBER", "user:bob"],
        ["SMISMEMBER", "user:ana", "user:bob"],
        ["SISMEMBER", "user:me"],
    ):
        refused = await ana.run(read[0], "upvoted:7", *read[1:])
        assert str(refused).startswith("ERR not allowed"), read
    assert await ana.run("SCARD", "upvoted:7") == 2
    assert await ana.run("EXISTS", "upvoted:7", "downvoted:7") == 1
    assert await ana.run("SISMEMBER", "upvoted:7", "user:ana") == 1
    assert await ana.run("SMISMEMBER", "downvoted:7", "user:ana") == [0]
    for trusted in (api_key_client, ProxyClient(http, token("root", "admin"))):
        assert sorted(await trusted.run("SMEMBERS", "upvoted:7")) == ["user:ana", "user:bob"]


ON_BANNED: Final = BANNED.replace("2", "4")
REFUSED: Final[list[list[Any]]] = [
    ["HGETALL", "user:bob"],
    ["HGET", "user:bob", "email"],
    ["HMGET", "user:bob", "bio", "custom"],
    ["HEXISTS", "user:bob", "bio"],
    ["EXISTS", "user:bob"],
    ["HGET", "user:me", "password_hash"],
    ["HGETALL", "auth:ana"],
    ["ZRANGE", "user:bob:bookmarked", 0, 1],
    ["SMEMBERS", f"post:{POST}:bookmarks"],
    ["HGET", f"post:{BANNED}", "banned_by"],
    ["HGETALL", "login:"],
    ["HGETALL", "on_clg_info"],
    ["GET", "no:such:key"],
    ["GET", "user:{ana}"],
    ["MGET", "article:", "auth:ana"],
    ["ZADD", "explore:feed", 1, "x"],
    ["SADD", "user:me:following", "bob"],
    ["HINCRBY", "user:me", "followerCount", 1],
    ["HSET", "user:me", "role", "admin"],
    ["HSET", "user:me", "nick", "a", "Role", "admin"],
    ["HSET", "user:me", "ＰＯＳＴ_count", "9"],
    ["HSET", "user:me", "password", "x"],
    ["HSET", "user:bob", "bio", "x"],
    ["HSET", f"post:{POST}", "content", "x"],
    ["HDEL", "user:me", "username"],
    ["EVAL", "return 1", 0],
    ["SORT", "user:me:bookmarked", "BY", "nosort", "GET", "auth:*->password_hash"],
    ["SCAN", 0],
    ["CONFIG", "GET", "*"],
    ["HGET", "user:me"],
    ["ZRANGE", "explore:feed", 0, 1, "STORE", "x"],
    ["SSCAN", "user:me:followers", 0, "MATCH", "*a*a*a*a"],
    ["HSET", "user:me", "big", "x" * 9_000],
    ["HSET", "user:me", "bio", "x" * 2_001],
    ["HSET", "user:me", "bio", "\x1b[2J"],
    ["HSET", "user:me", "email", "two\nlines"],
    [],
    ["HGET", "user:me", None],
    ["HGET", ["user:me"], "bio"],
]


async def test_forbidden_commands_are_refused_and_change_nothing(ana: ProxyClient, redis_client: Any) -> None:
    before = await redis_client.hgetall(social.USER("ana"))
    response = await ana.post("/", REFUSED)
    assert response.status_code == 200
    accepted = [
        words for words, error in zip(REFUSED, response.json(), strict=True) if not str(error).startswith("ERR ")
    ]
    assert accepted == []
    assert SECRET not in response.text
    assert await redis_client.hgetall(social.USER("ana")) == before


async def test_custom_fields_are_writable_and_no_profile_is_created(ana: ProxyClient, redis_client: Any) -> None:
    me = social.USER("ana")
    assert await ana.run("HSET", "user:me", "bio", "new", "n", 9007199254740993, "x", 1e-7, "on", True) == 3
    assert await redis_client.hmget(me, "bio", "n", "x", "on") == ["new", "9007199254740993", "1e-07", "true"]
    assert await ana.run("HINCRBY", "user:me", "n", 1) == 9007199254740994
    assert await ana.run("HDEL", "user:me", "x", "on", "email") == 3
    assert (await ana.run("HINCRBY", "user:me", "bio", 1)).startswith("ERR hash value is not an integer")
    carl = ProxyClient(ana.http, token("carl"))
    assert await carl.run("HSET", "user:me", "bio", "hi") == "ERR no such profile"
    assert await redis_client.exists(social.USER("carl")) == 0


async def test_a_profile_is_limited_in_size(ana: ProxyClient, redis_client: Any) -> None:
    pairs = [word for i in range(120) for word in (f"f{i}", "v")]
    assert "at most 128 fields" in await ana.run("HSET", "user:me", *pairs)
    assert await ana.run("HSET", "user:me", *pairs[:20]) == 10
    for i in range(7):
        assert await ana.run("HSET", "user:me", f"big{i}", "x" * 4_000) == 1
    assert "32768 bytes" in await ana.run("HSET", "user:me", "big7", "x" * 4_000, "big8", "x" * 4_000)
    assert await redis_client.hlen(social.USER("ana")) < 40


async def test_a_banned_post_looks_absent_except_to_admins(ana: ProxyClient, api_key_client: ProxyClient) -> None:
    admin = ProxyClient(ana.http, token("root", "admin"))
    bob = ProxyClient(ana.http, token("bob"))
    reads: list[tuple[Any, Any]] = [
        (("HGETALL", f"post:{BANNED}"), []),
        (("HMGET", f"post:{BANNED}", "content", "id"), [None, None]),
        (("SMEMBERS", f"post:{BANNED}:likes"), []),
        (("SCARD", f"post:{BANNED}:likes"), 0),
        (("LRANGE", f"post:{BANNED}:comments", 0, -1), []),
        (("EXISTS", f"post:{BANNED}", f"post:{POST}"), 1),
        (("EXISTS", f"comment:{ON_BANNED}", f"post:{POST}", f"comment:{POST.replace('1', '3')}"), 2),
        (("HVALS", f"post:{BANNED}"), []),
        (("HSCAN", f"comment:{ON_BANNED}", 0), ["0", []]),
        (("TYPE", f"post:{BANNED}"), "none"),
        (("HGET", f"comment:{ON_BANNED}", "content"), None),
        (("HGETALL", f"comment:{ON_BANNED}"), []),
    ]
    for words, absent in reads:
        assert await ana.run(*words) == await bob.run(*words) == absent
        assert await admin.run(*words) == await api_key_client.run(*words) != absent
    assert await ana.run("HMGET", f"comment:{POST.replace('1', '3')}", "post_id", "content") == [POST, "well said"]
    there = [["HGET", f"comment:{ON_BANNED}", "content"], ["HGET", f"comment:{ON_BANNED}", "id"]]
    assert (await ana.post("/multi-exec", there)).json() == [{"result": None}] * 2


async def test_an_admin_sees_more_than_a_user_and_less_than_a_server(
    ana: ProxyClient, api_key_client: ProxyClient, redis_client: Any
) -> None:
    admin = ProxyClient(ana.http, token("root", "admin"))
    assert await admin.run("SMEMBERS", f"post:{POST}:bookmarks") == ["ana"]
    assert "ERR not allowed" in await admin.run("HGET", "user:bob", "email")
    assert "ERR not allowed" in await admin.run("HSET", "user:bob", "bio", "x")
    assert await api_key_client.run("HGET", "user:bob", "email") == "bob@private.example"
    assert SECRET not in await api_key_client.run("HGETALL", "user:bob")
    assert await api_key_client.run("HSET", "user:bob", "bio", "edited") == 0
    assert await redis_client.hget(social.USER("bob"), "bio") == "edited"
    for words in (("HINCRBY", "user:bob", "postCount", 1), ("HGETALL", "auth:bob"), ("HGET", "user:me", "bio")):
        assert (await api_key_client.run(*words)).startswith("ERR ")


async def test_long_results_are_refused_before_they_are_read(ana: ProxyClient, redis_client: Any) -> None:
    many = social.USER_FOLLOWERS("many")
    for first in range(0, 12_000, 3_000):
        await redis_client.sadd(many, *(f"u{i}" for i in range(first, first + 3_000)))
    await redis_client.zadd(social.USERS_REGULAR(), {f"u{i}": i for i in range(12_000)})
    assert "12000 elements" in await ana.run("SMEMBERS", "user:many:followers")
    assert "12000 elements" in await ana.run("ZRANGE", "users:regular", 0, -1)
    assert "12000 elements" in await ana.run("ZREVRANGEBYSCORE", "users:regular", "+inf", "-inf")
    assert await ana.run("ZRANGE", "users:regular", 10, -11_989) == ["u10", "u11"]
    assert await ana.run("ZRANGE", "users:regular", "(5", 7, "BYSCORE") == ["u6", "u7"]
    assert await ana.run("ZRANGE", "users:regular", 7, 6, "BYSCORE", "REV", "LIMIT", 0, 1) == ["u7"]
    cursor, members = await ana.run("SSCAN", "user:many:followers", 0, "COUNT", 1000)
    assert cursor != "0"
    assert 900 < len(members) < 1_200
    both = (await ana.post("/", [["ZRANGE", "users:regular", 0, 6_000]] * 2)).json()
    assert all("5000 are allowed" in error for error in both)  # each gets its share
    assert "at most 256 commands" in (await ana.post("/", [["PING"]] * 257)).text
    assert "4096 arguments" in (await ana.post("/", [["MGET", *["article:"] * 4_096]])).text
    await ana.run("HSET", "user:me", "wide", "\U0001f3aa" * 4_000)
    repeated = await ana.post("/", [["HMGET", "user:me", *["wide"] * 400], ["PING"], ["HINCRBY", "user:me", "n", 1]])
    assert repeated.json() == ["ERR the results of this request are too large"] * 2 + [1]


async def test_the_four_routes_return_their_formats(ana: ProxyClient, api_key_client: ProxyClient) -> None:
    commands = [["HGET", "user:me", "bio"], ["KEYS", "*"], ["PING"]]
    refused = "ERR unknown or forbidden command 'keys'"
    assert (await ana.post("/", commands)).json() == ["I am ana", refused, "PONG"]
    written = await ana.post("/redis/write", commands)
    assert written.json() == {"results": ["I am ana", refused, "PONG"], "username": "ana"}
    assert (await api_key_client.post("/redis/write", [["PING"]])).json() == {"results": ["PONG"], "username": None}
    assert (await ana.post("/redis/write", commands[0])).json() == {"result": "I am ana"}
    piped = await ana.post("/pipeline", commands)
    assert piped.json() == [{"result": "I am ana"}, {"error": refused}, {"result": "PONG"}]
    moved = await ana.post("/multi-exec", [["HSET", "user:me", "n", 1], ["HINCRBY", "user:me", "bio", 1], commands[0]])
    assert [list(item) for item in moved.json()] == [["result"], ["error"], ["result"]]
    aborted = await ana.post("/multi-exec", [["HSET", "user:me", "n", 7], ["KEYS", "*"]])
    discarded = f"EXECABORT Transaction discarded because of: {refused}"
    assert aborted.json() == [{"error": discarded}, {"error": refused}]
    assert await ana.run("HGET", "user:me", "n") == "1"


async def test_strings_are_returned_in_base64_on_request(ana: ProxyClient, redis_client: Any) -> None:
    await redis_client.hset(social.USER("ana"), "raw", b"\xff\x00")
    encoded = await ana.post("/", ["HGET", "user:me", "raw"], **{"upstash-encoding": "base64"})
    assert encoded.json() == {"result": b64encode(b"\xff\x00").decode()}
    assert (await ana.run("HGET", "user:me", "raw")) == "\ufffd\0"
    feed = await ana.post(
        "/pipeline", [["ZRANGE", "explore:feed", 0, 1, "WITHSCORES"], ["ECHO", "OK"]], **{"upstash-encoding": "base64"}
    )
    assert feed.json() == [
        {"result": [b64encode(POST.encode()).decode(), b64encode(b"1700000000123").decode()]},
        {"result": "OK"},
    ]


async def test_invalid_requests_return_an_error_for_clients(http: httpx.AsyncClient, ana: ProxyClient) -> None:
    anonymous = await http.post("/", json=["PING"])
    assert (anonymous.status_code, anonymous.json()["code"]) == (401, "unauthenticated")
    assert anonymous.json()["error"].startswith("ERR ")
    for body in (b"", b"{}", b"[]", b'["PING"', b"[NaN]", b"[" * 100_000, b"\xff", b'"PING"', b"null"):
        bad = await http.post("/pipeline", content=body, headers={"authorization": f"Bearer {ana.bearer}"})
        assert (bad.status_code, bad.json()["code"]) == (400, "bad_json")
        assert bad.json()["error"].startswith("ERR ")
    surrogate = await http.post("/", content=b'["ECHO", "\\ud800"]', headers={"authorization": f"Bearer {ana.bearer}"})
    assert surrogate.status_code == 400
    large = await ana.post("/", ["ECHO", "x" * 300_000])
    assert (large.status_code, large.json()["error"][:4]) == (413, "ERR ")


async def test_encrypted_fields_are_decrypted_for_their_user_only(
    ana: ProxyClient, api_key_client: ProxyClient, redis_client: Any
) -> None:
    assert await ana.run("HSET", "user:me", "ssn", "078-05-1120", "bio", "tea") == 1
    stored = await redis_client.hget(social.USER("ana"), "ssn")
    assert stored.startswith("plaza-enc-v1:")
    await redis_client.hset(social.USER("ana"), "bank_account", "plain")  # by another service, as the document says
    own = {"ssn": "078-05-1120", "bank_account": "plain"}
    assert await ana.run("HGET", "user:me", "ssn") == own["ssn"]
    assert await ana.run("HMGET", "user:me", "ssn", "bio", "ssn", "bank_account", "none") == [
        own["ssn"], "tea", own["ssn"], "plain", None,
    ]  # fmt: skip
    assert own.items() <= dict(pairs(await ana.run("HGETALL", "user:me"))).items()
    assert own.items() <= dict(pairs((await ana.run("HSCAN", "user:me", 0, "COUNT", 100))[1])).items()
    assert set(own.values()) <= set(await ana.run("HVALS", "user:me"))
    assert await ana.run("HSTRLEN", "user:me", "ssn") == 11

    sealed = dict(pairs(await api_key_client.run("HGETALL", "user:ana")))
    assert sealed["ssn"] == stored == await api_key_client.run("HGET", "user:ana", "ssn")
    assert sealed["bank_account"].startswith("plaza-enc-v1:")
    assert await api_key_client.run("HSTRLEN", "user:ana", "ssn") == len(stored)
    # A server can write a number for a user, and cannot read a stolen value by giving it to its own user.
    assert await api_key_client.run("HSET", "user:bob", "ssn", stored, "credit_card", "4111") == 2
    bob = ProxyClient(ana.http, token("bob"))
    assert await bob.run("HMGET", "user:me", "ssn", "credit_card") == [stored, "4111"]
    await redis_client.hset(social.USER("bob"), "ssn", stored)
    assert await bob.run("HMGET", "user:me", "ssn") == [None]
    assert "ssn" not in dict(pairs(await bob.run("HGETALL", "user:me")))

    for caller in (ana, api_key_client):
        assert "is encrypted" in await caller.run("HINCRBY", "user:ana", "credit_card", 1)
    assert await ana.run("HDEL", "user:me", "ssn") == 1


async def test_a_write_has_its_result_although_valkey_is_lost_before_its_event(server: Server) -> None:
    with server.redis_client() as plain:
        plain.hset(social.USER("ana"), "username", "ana")
    async with Relay(server.port) as relay, await connect_for_test(relay.url) as valkey:
        functions = Functions(valkey, [execution.LIBRARY, rate_limits.LIBRARY])
        await functions.load()

        async def lose_valkey(owners: Sequence[str]) -> None:
            relay.refuse = True
            relay.cut()
            await valkey.call("EXISTS", *owners)

        on_write = {social.USER.pattern: lose_valkey}
        proxy = Proxy(functions, Limiter(functions, on=False), catalogues(), ENCRYPTION, on_write=on_write)
        commands = [["HSET", "user:me", "bio", "tea"], ["HINCRBY", "user:me", "visits", "1"]]
        assert await proxy.run(Actor("ana", "user"), "127.0.0.1", commands) == [1, 1]


COMMENT = "33333333-1111-4111-8111-111111111111"


@pytest.mark.parametrize(
    "reads",
    [[["HGET", f"comment:{COMMENT}", "content"]], [["ZSCAN", "explore:feed", "0", "COUNT", "1000"]] * 8],
    ids=["a key is checked", "the rest is sent"],
)
async def test_a_write_has_its_result_although_valkey_is_lost_before_the_next_batch(
    server: Server, monkeypatch: pytest.MonkeyPatch, reads: list[list[str]]
) -> None:
    with server.redis_client() as plain:
        plain.hset(social.USER("ana"), "username", "ana")
        plain.hset(social.COMMENT(COMMENT), mapping={"id": COMMENT, "post_id": POST, "content": "hi"})
    async with Relay(server.port) as relay, await connect_for_test(relay.url) as valkey:
        functions = Functions(valkey, [execution.LIBRARY, rate_limits.LIBRARY])
        await functions.load()
        proxy = Proxy(functions, Limiter(functions, on=False), catalogues(), ENCRYPTION)
        batch, sent = valkey.batch, list[Any]()

        def lose_valkey_before_the_second(commands: Any, **options: Any) -> Any:
            sent.append(commands)
            if len(sent) == 2:
                relay.refuse = True
                relay.cut()
            return batch(commands, **options)

        monkeypatch.setattr(valkey, "batch", lose_valkey_before_the_second)
        increment = ["HINCRBY", "user:me", "visits", "1"]
        written, *_, last = await proxy.run(Actor("ana", "user"), "127.0.0.1", [increment, *reads])
        assert (written, str(last), len(sent)) == (1, "ERR Valkey is unavailable or busy.", 2)
