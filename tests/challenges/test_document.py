"""Plaza and a program that follows the document share the SQL tables and the documented keys.

The program writes rows with plain SQL, and the documented keys with plain commands.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from plaza.app import Plaza
from plaza.challenges import invariants
from plaza.challenges.daily_job.runner import DailyJob
from plaza.keyspace.audit import REPAIR, Audits, recheck
from tests.http_servers import all_of_plaza, client_of
from tests.servers import Cluster, Server

pytestmark = pytest.mark.parametrize("place", ["server"], indirect=True)  # a plain client needs the SQLite file

TABLES = {"clg": "challenge", "mmbr": "member", "post": "post", "reaction": "reaction", "tracking": "tracking"}
MAX_POST_AGE = 30
# Long enough for hundreds of operations of both.
INTERLEAVE_SECONDS = 3.0


class DocumentProgram:
    """Another program: rows by SQL, and the documented keys computed from all rows."""

    def __init__(self, file: Path, redis_client: Any) -> None:
        self._file = file
        self._redis = redis_client
        self.today = int(time.time()) // 86_400

    def insert(self, table: str, **values: Any) -> int:
        marks = ", ".join("?" * len(values))
        with closing(sqlite3.connect(self._file, timeout=30)) as connection, connection:
            statement = f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})"
            return int(connection.execute(statement, list(values.values())).lastrowid or 0)

    def delete(self, table: str, id: int) -> None:
        with closing(sqlite3.connect(self._file, timeout=30)) as connection, connection:
            connection.execute(f"DELETE FROM {table} WHERE id = ?", (id,))

    def rows(self, table: str) -> list[sqlite3.Row]:
        with closing(sqlite3.connect(self._file, timeout=30)) as connection:
            connection.row_factory = sqlite3.Row
            return connection.execute(f"SELECT * FROM {table}").fetchall()

    def challenge(self, title: str, category: int, *, public: bool = True, ends_in: int = 20) -> int:
        ends = self.today + ends_in
        values = {"title": title, "category": category, "is_public": public, "duration": 40, "creator": "eve"}
        return self.insert("challenge", **values, created_ms=int(time.time() * 1000), ends_day=ends)

    def post(self, challenge: int, username: str, *, age: int = 0, is_break: bool = False) -> int:
        values = {"challenge_id": challenge, "username": username, "text": "Done.", "is_break": is_break}
        return self.insert("post", **values, created_ms=int(time.time() * 1000), day=self.today - age)

    def react(self, post: int, challenge: int, username: str) -> int:
        return self.insert("reaction", post_id=post, challenge_id=challenge, username=username, created_ms=1)

    def documented_keys(self) -> dict[str, Any]:
        """What the document says the keys hold, from all rows."""
        rows = {name: self.rows(table) for name, table in TABLES.items()}
        challenges = {row["id"]: row for row in rows["clg"]}
        ongoing = {id: row for id, row in challenges.items() if row["ends_day"] > self.today}
        values: dict[str, Any] = {
            "rs_param": {
                "max_post_age": str(MAX_POST_AGE),
                "distinct_category": "5",
                "day_index": str(self.today % MAX_POST_AGE),
            },
            "db_len": {name: str(len(found)) for name, found in rows.items()},
            "on_clg_info": {
                str(id): f"{row['category']},{row['is_public']},{row['duration']},{iso_date(row['ends_day'])}"
                for id, row in ongoing.items()
            },
            "post_clg_pair": {},
        }
        for row in rows["post"]:
            challenge = ongoing.get(row["challenge_id"])
            recent = 0 <= self.today - row["day"] < MAX_POST_AGE
            if challenge is not None and challenge["is_public"] and recent and not row["is_break"]:
                pool = values.setdefault(f"recent_posts_for_category{challenge['category']}", {})
                pool[str(row["id"])] = float(row["day"] % MAX_POST_AGE)
                values["post_clg_pair"][str(row["id"])] = str(challenge["id"])
        liked: dict[str, set[str]] = defaultdict(set)
        preference: dict[str, Counter[str]] = defaultdict(Counter)
        for row in rows["reaction"]:
            liked[f"{row['username']}_liked_posts"].add(str(row["post_id"]))
            preference[f"{row['username']}_clgs_preference"][str(row["challenge_id"])] += 1
        days: dict[str, list[int]] = defaultdict(lambda: [0] * 5)
        for row in rows["tracking"]:
            days[row["username"]][challenges[row["challenge_id"]]["category"] - 1] += 1
        values["user_contribution"] = {name: ",".join(map(str, five)) for name, five in days.items()}
        values |= liked | {key: dict(counts) for key, counts in preference.items()}
        return {key: value for key, value in values.items() if value}

    async def write_documented_keys(self) -> None:
        for key, value in self.documented_keys().items():
            if isinstance(value, set):
                await self._redis.sadd(key, *value)
            elif key.startswith("recent_posts") or key.endswith("_preference"):
                await self._redis.zadd(key, value)
            else:
                await self._redis.hset(key, mapping=value)

    async def read_documented_keys(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key in await self._redis.keys("*"):
            is_documented = key.endswith(("_liked_posts", "_clgs_preference")) or key.startswith("recent_posts")
            if ":" in key or not (is_documented or key in self.documented_keys()):
                continue
            kind = await self._redis.type(key)
            if kind == "hash":
                found[key] = await self._redis.hgetall(key)
            elif kind == "set":
                found[key] = await self._redis.smembers(key)
            else:
                found[key] = dict(await self._redis.zrange(key, 0, -1, withscores=True))
        return found


def iso_date(day: int) -> str:
    return (date(1970, 1, 1) + timedelta(days=day)).isoformat()


@pytest.fixture
async def plaza(place: Server | Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Plaza]:
    monkeypatch.setattr(recheck, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(invariants, "PAUSE_SECONDS", 0.001)
    async with all_of_plaza(place, tmp_path) as plaza:
        yield plaza


@pytest.fixture
async def http(plaza: Plaza) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(plaza.app) as client:
        yield client


@pytest.fixture
def program(plaza: Plaza, tmp_path: Path, redis_client: Any) -> DocumentProgram:
    return DocumentProgram(tmp_path / "plaza.sqlite", redis_client)


def bearer(plaza: Plaza, name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {plaza.core.auth.issue(name, 'user')}"}


async def test_everything_that_the_document_allows_is_shown_and_kept(
    plaza: Plaza, http: httpx.AsyncClient, program: DocumentProgram
) -> None:
    run, bake = program.challenge("Run", 1), program.challenge("Bake", 2)
    secret, ended = program.challenge("Secret", 3, public=False), program.challenge("Ended", 4, ends_in=-1)
    posts = [program.post(run, "ana"), program.post(run, "ben", age=3), program.post(bake, "ben", is_break=True)]
    posts += [program.post(secret, "eve"), program.post(ended, "ana", age=5), program.post(run, "ben", age=40)]
    for username in ("ana", "ben", "cleo"):
        program.insert("member", challenge_id=run, username=username, joined_day=program.today - 9)
        for day in range(3):
            program.insert("tracking", challenge_id=run, username=username, day=program.today - day)
    program.react(posts[0], run, "cleo")
    program.react(posts[4], ended, "cleo")
    await program.write_documented_keys()
    before = await program.read_documented_keys()
    assert before == program.documented_keys()

    listed = (await http.get("/challenges")).json()["challenges"]
    assert [(found["id"], found["title"]) for found in listed] == [(4, "Ended"), (2, "Bake"), (1, "Run")]
    assert (await http.get(f"/challenges/{run}")).json()["members"] == 3
    shown = (await http.get(f"/challenges/{run}/posts")).json()["posts"]
    assert [(found["id"], found["reactions"]) for found in shown] == [(posts[5], 0), (posts[1], 0), (posts[0], 1)]
    recommended = (await http.get("/challenges/recommendations", headers=bearer(plaza, "cleo"))).json()["posts"]
    assert [(found["post"]["id"], found["reason"]) for found in recommended] == [(posts[1], "3 days in fitness")]

    await plaza.get(DailyJob).run()
    assert await program.read_documented_keys() == before
    report = await plaza.get(Audits).run(REPAIR)
    assert report.clean, report.left
    assert await program.read_documented_keys() == before


async def test_operations_of_both_interleave_without_a_loss(
    plaza: Plaza, http: httpx.AsyncClient, program: DocumentProgram
) -> None:
    rng, numbers = random.Random(5), itertools.count()
    challenges = [program.challenge(f"Challenge {n}", n, ends_in=5) for n in range(1, 6)]
    posts = [(program.post(id, "eve"), id) for id in challenges]
    names = [f"plaza{n}" for n in range(3)]
    for name, id in itertools.product(names, challenges):
        assert (await http.post(f"/challenges/{id}/join", headers=bearer(plaza, name))).status_code == 201
    await plaza.get(DailyJob).run()

    async def plaza_operation(name: str) -> None:
        headers, (post, challenge) = bearer(plaza, name), rng.choice(posts)
        choice = rng.random()
        if choice < 0.4:
            response = await http.put(f"/challenges/posts/{post}/reaction", headers=headers)
        elif choice < 0.6:
            response = await http.delete(f"/challenges/posts/{post}/reaction", headers=headers)
        elif choice < 0.8:
            response = await http.post(f"/challenges/{challenge}/track", json={}, headers=headers)
        elif choice < 0.9:
            response = await http.post(f"/challenges/{challenge}/posts", json={"text": "Done."}, headers=headers)
            posts.append((response.json()["id"], challenge))
        else:
            response = await http.get("/challenges/recommendations", headers=headers)
        assert response.status_code < 500, response.text

    async def program_operation(name: str) -> None:
        post, challenge = rng.choice(posts)
        choice, number = rng.random(), next(numbers)
        if choice < 0.4:
            row = await asyncio.to_thread(program.react, post, challenge, f"{name}_{number}")
            if rng.random() < 0.3:
                await asyncio.to_thread(program.delete, "reaction", row)
        elif choice < 0.8:
            values = {"challenge_id": challenge, "username": rng.choice([name, *names]), "day": 1_000 + number}
            row = await asyncio.to_thread(program.insert, "tracking", **values)
            if rng.random() < 0.3:
                await asyncio.to_thread(program.delete, "tracking", row)
        else:
            posts.append((await asyncio.to_thread(program.post, challenge, name), challenge))

    async def roll(_: str) -> None:
        await plaza.get(DailyJob).run()
        await asyncio.sleep(0.3)

    async def repeat(operation: Callable[[str], Awaitable[None]], name: str) -> None:
        while time.monotonic() < until:
            await operation(name)

    until = time.monotonic() + INTERLEAVE_SECONDS
    await asyncio.gather(
        *(repeat(plaza_operation, name) for name in names),
        *(repeat(program_operation, f"other{n}") for n in range(2)),
        repeat(roll, ""),
    )
    await plaza.get(DailyJob).run()
    expected = program.documented_keys()
    assert await program.read_documented_keys() == expected
    report = await plaza.get(Audits).run(REPAIR)
    assert report.clean, report.left
    assert await program.read_documented_keys() == expected
