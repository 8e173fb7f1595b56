"""Tens of thousands of random command arrays, half valid and half broken, from a hostile user and a server.

The keyspace has a key of every family, and everything that the user may not read contains a mark. No response contains
the mark, and no key changes but the user's own profile, in the fields that the user may write.
"""

from __future__ import annotations

import random
import re
from typing import Any, Final

import httpx
import pytest

from plaza.core.keyspace import Key, KeyAccess, Layout
from plaza.keyspace.proxy.commands import COMMANDS
from plaza.keyspace.proxy.encoding import MAX_COMMANDS
from plaza.social import keys as social
from tests.keyspace.proxy.conftest import KEY, ProxyClient, token
from tests.keyspace.sample_keys import BANNED, MARK, POST, SECRET, dump_all, families, is_open, parts_of, write_all

REQUESTS: Final = 120  # of 256 commands each, on one server and on a cluster
SEED: Final = 20_261_115

# Commands that the proxy does not have.
HOSTILE: Final = re.findall(
    "[A-Z_]+",
    """
    EVAL EVALSHA FCALL FCALL_RO SCRIPT SORT SORT_RO COPY RENAME DUMP RESTORE MIGRATE OBJECT DEBUG CONFIG KEYS SCAN
    RANDOMKEY SUBSCRIBE MULTI EXEC WATCH SELECT FLUSHALL DEL UNLINK EXPIRE PERSIST SET SETEX GETSET GETDEL APPEND MSET
    INCR HSETNX HMSET HINCRBYFLOAT HSETEX HGETDEL HRANDFIELD SADD SREM SMOVE SINTER SUNION SDIFFSTORE ZADD ZREM ZUNION
    ZUNIONSTORE ZRANGESTORE ZINTERCARD LPUSH LMOVE BLPOP XRANGE XREAD GEOADD CLIENT ACL CLUSTER LCS BITFIELD PFCOUNT
    """,
)
OPTIONS: Final = ["WITHSCORES", "LIMIT", "BYSCORE", "BYLEX", "REV", "MATCH", "COUNT", "STORE", "GET", "BY", "STREAMS"]
NUMBERS: Final = [0, -1, 1, 7, 100, 10**6, 2**53 + 1, -(2**63), 1.5, "(1", "+inf", "-inf", "[a", "+", "-", "1e3", ""]


def names(key: Key) -> list[str]:
    return [
        key.name(Layout.PLAIN, *parts_of(key, username=owner, post=post, comment=post))
        for owner in ("bob", "me", "AUTH", "ana")
        for post in (POST, BANNED)
    ]


class Attacker:
    """Generates commands."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names = sorted({name for key in families() for name in names(key)})
        declared = [field.name for key in families() for field in key.fields]
        self.fields = [
            *declared,
            "undeclared",
            "mine",
            "Role",
            "PASSWORD_HASH",
            "e-mail",
            "total",
            "bob",
            "\0",
            "ｒｏｌｅ",
        ]

    def key(self) -> Any:
        name = self.random.choice(self.names)
        if self.random.random() < 0.6:
            name = self.random.choice(("user:me", "user:bob", f"post:{BANNED}", f"comment:{BANNED}", "auth:ana", name))
        twist = self.random.random()
        if twist < 0.8:
            return name
        head, _, tail = name.partition(":")
        twisted = (
            name.upper(), f"{name}\0", f" {name}", f"{name}:", f"{head}:{{{tail}}}", f"{head}::{tail}", f"{name}\n",
            f"{{x}}{name}", name.replace("me", "me*"), name.replace("bob", "bob\0"), name.replace("bob", "b?b"), [name],
            name.replace(":", "："), f"tmp:home:me:{name}", {"key": name}, None, True, 7, f"{name} {name}", name[::-1],
        )  # fmt: skip
        return self.random.choice(twisted)

    def argument(self) -> Any:
        kind = self.random.random()
        if kind < 0.45:
            return self.random.choice(self.fields)
        if kind < 0.6:
            return self.random.choice(OPTIONS)
        if kind < 0.8:
            return self.random.choice(NUMBERS)
        return (
            self.key()
            if kind < 0.95
            else self.random.choice(["*", "x" * 9_000, "\ud7ff", "🎪", "auth:*->password_hash"])
        )

    def command(self) -> list[Any]:
        chance = self.random.random()
        if chance < 0.15:
            return [self.random.choice(HOSTILE), *(self.argument() for _ in range(self.random.randrange(5)))]
        command = self.random.choice([*COMMANDS.values(), COMMANDS["HSET"], COMMANDS["HMGET"]])
        name = command.name.lower() if self.random.random() < 0.3 else command.name
        words: list[Any] = [self.valid_argument(kind) for kind in command.arguments]
        for _ in range(self.random.randrange(1, 3) if command.repeated else 0):
            words += [self.valid_argument(kind) for kind in command.repeated]
        for option, kinds in command.options.items():
            if self.random.random() < 0.3:
                words += [option, *(self.valid_argument(kind) for kind in kinds)]
        if self.random.random() < 0.15:
            words.insert(self.random.randrange(len(words) + 1), self.argument())
        return [name, *words]

    def valid_argument(self, kind: str) -> Any:
        if self.random.random() < 0.05:
            return self.argument()
        if kind == "key":
            return self.key()
        if kind == "field":
            return self.random.choice(self.fields)
        if kind in ("value", "member", "pattern"):
            return self.random.choice(["open", "7", "ana", "*", 12, False])
        likely: dict[str, list[Any]] = {"score": ["-inf", "+inf", 0], "lex": ["-", "+"], "cursor": [0]}
        return self.random.choice(likely.get(kind, [0, 1, -1, 50]))


def forbidden() -> set[str]:
    """The names of keys that ana may not read at all. Of sets with hidden members she may read the size."""
    closed = [key for key in families() if key.read is not KeyAccess.MEMBERSHIP]
    return {
        name for key in closed if not is_open(key.read, "ana")
        for name in names(key)
    } | {
        key.name(Layout.PLAIN, *parts_of(key, username="bob")) for key in closed if not is_open(key.read, "bob")
    }  # fmt: skip


@pytest.fixture
async def all_families(http: httpx.AsyncClient, redis_client: Any) -> None:
    await write_all(redis_client)


@pytest.mark.usefixtures("all_families")
async def test_no_command_of_a_user_reads_or_writes_data_of_others(http: httpx.AsyncClient, redis_client: Any) -> None:
    attacker, ana, closed = Attacker(SEED), ProxyClient(http, token()), forbidden()
    before = await dump_all(redis_client)
    performed = 0
    for _ in range(REQUESTS):
        commands, outcomes = await attack(attacker, ana, (MARK, SECRET))
        performed += sum(not str(outcome).startswith("ERR") for outcome in outcomes)
        for words, outcome in zip(commands, outcomes, strict=True):
            if _must_fail(words, closed):
                assert str(outcome).startswith(("ERR", "WRONGTYPE")), words
    assert performed > REQUESTS * MAX_COMMANDS / 40, "too many commands are refused to prove anything"
    assert_only_profiles_changed(before, await dump_all(redis_client), {social.USER("ana")})


@pytest.mark.usefixtures("all_families")
async def test_no_command_of_a_server_reads_a_secret_or_writes_outside_profiles(
    http: httpx.AsyncClient, redis_client: Any
) -> None:
    attacker, server = Attacker(SEED + 1), ProxyClient(http, KEY)
    before = await dump_all(redis_client)
    for _ in range(REQUESTS // 4):
        await attack(attacker, server, (SECRET,))
    assert_only_profiles_changed(before, await dump_all(redis_client), {social.USER("ana"), social.USER("bob")})


async def attack(attacker: Attacker, client: ProxyClient, marks: tuple[str, ...]) -> tuple[list[list[Any]], list[Any]]:
    """Send one request and check that the response has no mark. Returns the outcome of each command for `POST /`."""
    commands = [attacker.command() for _ in range(MAX_COMMANDS)]
    path = attacker.random.choice(["/", "/", "/redis/write", "/pipeline", "/multi-exec"])
    response = await client.post(path, commands if path != "/multi-exec" else commands[:2])
    assert not any(mark in response.text for mark in marks), _leaks(commands, response.json())
    return (commands, response.json()) if path == "/" else ([], [])


def assert_only_profiles_changed(before: dict[str, Any], after: dict[str, Any], profiles: set[str]) -> None:
    """Check that only these profiles changed, and in them only writable fields."""
    others = [{name: value for name, value in dump.items() if name not in profiles} for dump in (before, after)]
    assert others[0] == others[1]
    read_only = [field.name for field in social.USER.fields if field.write is KeyAccess.NONE]
    for profile in profiles:
        assert [after[profile].get(name) for name in read_only] == [before[profile].get(name) for name in read_only]
    assert any(after[profile] != before[profile] for profile in profiles), "no write succeeded"


def _must_fail(words: list[Any], closed: set[str]) -> bool:
    """Whether a command must be refused although its reply could not contain the mark: sizes, existence."""
    if len(words) < 2 or not isinstance(words[1], str):
        return False
    return words[1] in closed or (words[1] == "user:bob" and words[0].upper() not in ("HGET", "HMGET", "ECHO"))


def _leaks(commands: list[list[Any]], outcomes: Any) -> list[Any]:
    rows = outcomes["results"] if isinstance(outcomes, dict) else outcomes
    return [pair for pair in zip(commands, rows, strict=False) if "not-for-an" in str(pair[1])]
