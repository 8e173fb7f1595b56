"""Tens of thousands of command arrays by a person who means harm, half right and half broken.

The keyspace has every family of the catalogue, and whatever is not for that person carries a mark. No answer has the
mark, no key but the person's own profile changes, and of that nothing but the fields that are theirs.
"""

from __future__ import annotations

import random
import re
from typing import Any, Final

import httpx
import pytest

from plaza.core.keyspace import Key, KeyAccess, Layout
from plaza.keyspace.proxy.commands import COMMANDS
from plaza.keyspace.proxy.encoding import MOST_COMMANDS
from plaza.social import keys as social
from tests.keyspace.proxy.conftest import KEY, Door, token
from tests.keyspace.sample_keys import BANNED, MARK, POST, SECRET, dump_all, families, is_open, parts_of, write_all

CALLS: Final = 120  # of 256 commands each, on one server and on a cluster
SEED: Final = 20_261_115

# Commands that Valkey has and the proxy has not, or that look like one it has.
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
    """Makes commands."""

    def __init__(self, seed: int) -> None:
        self.pick = random.Random(seed)
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
        name = self.pick.choice(self.names)
        if self.pick.random() < 0.6:
            name = self.pick.choice(("user:me", "user:bob", f"post:{BANNED}", f"comment:{BANNED}", "auth:ana", name))
        twist = self.pick.random()
        if twist < 0.8:
            return name
        head, _, tail = name.partition(":")
        twisted = (
            name.upper(), f"{name}\0", f" {name}", f"{name}:", f"{head}:{{{tail}}}", f"{head}::{tail}", f"{name}\n",
            f"{{x}}{name}", name.replace("me", "me*"), name.replace("bob", "bob\0"), name.replace("bob", "b?b"), [name],
            name.replace(":", "："), f"tmp:home:me:{name}", {"key": name}, None, True, 7, f"{name} {name}", name[::-1],
        )  # fmt: skip
        return self.pick.choice(twisted)

    def word(self) -> Any:
        kind = self.pick.random()
        if kind < 0.45:
            return self.pick.choice(self.fields)
        if kind < 0.6:
            return self.pick.choice(OPTIONS)
        if kind < 0.8:
            return self.pick.choice(NUMBERS)
        return (
            self.key() if kind < 0.95 else self.pick.choice(["*", "x" * 9_000, "\ud7ff", "🎪", "auth:*->password_hash"])
        )

    def command(self) -> list[Any]:
        chance = self.pick.random()
        if chance < 0.15:
            return [self.pick.choice(HOSTILE), *(self.word() for _ in range(self.pick.randrange(5)))]
        command = self.pick.choice([*COMMANDS.values(), COMMANDS["HSET"], COMMANDS["HMGET"]])
        name = command.name.lower() if self.pick.random() < 0.3 else command.name
        words: list[Any] = [self.fitting(kind) for kind in command.words]
        for _ in range(self.pick.randrange(1, 3) if command.many else 0):
            words += [self.fitting(kind) for kind in command.many]
        for option, kinds in command.options.items():
            if self.pick.random() < 0.3:
                words += [option, *(self.fitting(kind) for kind in kinds)]
        if self.pick.random() < 0.15:
            words.insert(self.pick.randrange(len(words) + 1), self.word())
        return [name, *words]

    def fitting(self, kind: str) -> Any:
        if self.pick.random() < 0.05:
            return self.word()
        if kind == "key":
            return self.key()
        if kind == "field":
            return self.pick.choice(self.fields)
        if kind in ("value", "member", "pattern"):
            return self.pick.choice(["open", "7", "ana", "*", 12, False])
        likely: dict[str, list[Any]] = {"score": ["-inf", "+inf", 0], "lex": ["-", "+"], "cursor": [0]}
        return self.pick.choice(likely.get(kind, [0, 1, -1, 50]))


def forbidden() -> set[str]:
    """The names of keys of which ana may learn nothing at all."""
    return {
        name for key in families() if not is_open(key.read, "ana")
        for name in names(key)
    } | {
        key.name(Layout.PLAIN, *parts_of(key, username="bob")) for key in families() if not is_open(key.read, "bob")
    }  # fmt: skip


@pytest.fixture
async def everything(http: httpx.AsyncClient, redis_client: Any) -> None:
    await write_all(redis_client)


@pytest.mark.usefixtures("everything")
async def test_no_command_array_of_a_person_reads_or_writes_what_is_not_theirs(
    http: httpx.AsyncClient, redis_client: Any
) -> None:
    attacker, ana, closed = Attacker(SEED), Door(http, token()), forbidden()
    before = await dump_all(redis_client)
    performed = 0
    for _ in range(CALLS):
        commands, outcomes = await attack(attacker, ana, (MARK, SECRET))
        performed += sum(not str(outcome).startswith("ERR") for outcome in outcomes)
        for words, outcome in zip(commands, outcomes, strict=True):
            if _must_fail(words, closed):
                assert str(outcome).startswith(("ERR", "WRONGTYPE")), words
    assert performed > CALLS * MOST_COMMANDS / 40, "nothing is proved if all is refused"
    only_written(before, await dump_all(redis_client), {social.USER("ana")})


@pytest.mark.usefixtures("everything")
async def test_no_command_array_of_a_server_reads_a_secret_or_writes_but_into_profiles(
    http: httpx.AsyncClient, redis_client: Any
) -> None:
    attacker, server = Attacker(SEED + 1), Door(http, KEY)
    before = await dump_all(redis_client)
    for _ in range(CALLS // 4):
        await attack(attacker, server, (SECRET,))
    only_written(before, await dump_all(redis_client), {social.USER("ana"), social.USER("bob")})


async def attack(attacker: Attacker, door: Door, marks: tuple[str, ...]) -> tuple[list[list[Any]], list[Any]]:
    """One call. What it says of each command, where that is said in a row; no answer has a mark."""
    commands = [attacker.command() for _ in range(MOST_COMMANDS)]
    path = attacker.pick.choice(["/", "/", "/redis/write", "/pipeline", "/multi-exec"])
    answer = await door.post(path, commands if path != "/multi-exec" else commands[:2])
    assert not any(mark in answer.text for mark in marks), _culprits(commands, answer.json())
    return (commands, answer.json()) if path == "/" else ([], [])


def only_written(before: dict[str, Any], after: dict[str, Any], profiles: set[str]) -> None:
    """Nothing has changed but these, and nothing in them but what their people may write."""
    others = [{name: value for name, value in dump.items() if name not in profiles} for dump in (before, after)]
    assert others[0] == others[1]
    kept = [field.name for field in social.USER.fields if field.write is KeyAccess.NONE]
    for profile in profiles:
        assert [after[profile].get(name) for name in kept] == [before[profile].get(name) for name in kept]
    assert any(after[profile] != before[profile] for profile in profiles), "nothing was ever written"


def _must_fail(words: list[Any], closed: set[str]) -> bool:
    """What says nothing that could carry the mark is refused all the same: how many, how long, whether at all."""
    if len(words) < 2 or not isinstance(words[1], str):
        return False
    return words[1] in closed or (words[1] == "user:bob" and words[0].upper() not in ("HGET", "HMGET", "ECHO"))


def _culprits(commands: list[list[Any]], outcomes: Any) -> list[Any]:
    rows = outcomes["results"] if isinstance(outcomes, dict) else outcomes
    return [pair for pair in zip(commands, rows, strict=False) if "not-for-an" in str(pair[1])]
