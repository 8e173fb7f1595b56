"""Computes what Valkey must hold from all rows of the tables and the day, in the simplest way."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from sqlalchemy import select

from plaza.challenges.keys import (
    CLGS_PREFERENCE,
    DB_LEN,
    LIKED_POSTS,
    ON_CLG_INFO,
    POST_CLG_PAIR,
    RECENT_POSTS,
    RS_PARAM,
    USER_CONTRIBUTION,
)
from plaza.challenges.model import iso_date
from plaza.challenges.tables import TABLES
from plaza.core.keyspace import Key, Layout
from tests.challenges.conftest import MAX_POST_AGE, ChallengeServices


async def expected(services: ChallengeServices, today: int) -> dict[str, Any]:
    rows: dict[str, list[Any]] = {}
    async with services.sql.read() as tx:
        for name, table in TABLES.items():
            rows[name] = list((await tx.execute(select(table))).all())
    values: dict[str, Any] = {
        RS_PARAM(): {
            "max_post_age": str(MAX_POST_AGE),
            "distinct_category": "5",
            "day_index": str(today % MAX_POST_AGE),
        },
        DB_LEN(): {name: str(len(found)) for name, found in rows.items()},
    }
    challenges = {row.id: row for row in rows["clg"]}
    ongoing = {row.id for row in rows["clg"] if row.ends_day > today}
    values[ON_CLG_INFO()] = {
        str(id): f"{c.category},{int(c.is_public)},{c.duration},{iso_date(c.ends_day)}"
        for id, c in challenges.items()
        if id in ongoing
    }
    pool = {
        p.id: p
        for p in rows["post"]
        if p.challenge_id in ongoing
        and challenges[p.challenge_id].is_public
        and not p.is_break
        and 0 <= today - p.day < MAX_POST_AGE
    }
    values[POST_CLG_PAIR()] = {str(id): str(p.challenge_id) for id, p in pool.items()}
    for category in range(1, 6):
        inside = {id: p for id, p in pool.items() if challenges[p.challenge_id].category == category}
        values[RECENT_POSTS(category)] = {str(id): p.day % MAX_POST_AGE for id, p in inside.items()}
    liked: dict[str, Any] = defaultdict(set)
    preference: dict[str, Counter[str]] = defaultdict(Counter)
    for r in rows["reaction"]:
        liked[LIKED_POSTS(r.username)].add(str(r.post_id))
        preference[CLGS_PREFERENCE(r.username)][str(r.challenge_id)] += 1
    days: dict[str, list[int]] = defaultdict(lambda: [0] * 5)
    for t in rows["tracking"]:
        days[t.username][challenges[t.challenge_id].category - 1] += 1
    values[USER_CONTRIBUTION()] = {name: ",".join(map(str, five)) for name, five in days.items()}
    values |= liked | {key: dict(counts) for key, counts in preference.items()}
    return {key: value for key, value in values.items() if value}  # an absent key is an empty one


async def read_documented_keys(redis_client: Any) -> dict[str, Any]:
    """All documented keys of challenges, read with a plain client."""
    stored: dict[str, Any] = {}
    names = (
        await redis_client.keys("*")
        if Key.layout is Layout.PLAIN
        else await redis_client.keys("*", target_nodes="primaries")
    )
    for name in names:
        if ":" in name:  # documented keys of challenges have no colon
            continue
        kind = await redis_client.type(name)
        if kind == "hash":
            stored[name] = await redis_client.hgetall(name)
        elif kind == "set":
            stored[name] = await redis_client.smembers(name)
        elif kind == "zset":
            stored[name] = dict(await redis_client.zrange(name, 0, -1, withscores=True))
    return stored


async def assert_matches_tables(services: ChallengeServices, redis_client: Any, *, ignore: str = "") -> None:
    values, stored = await expected(services, services.projections.today()), await read_documented_keys(redis_client)
    values.pop(ignore, None)
    stored.pop(ignore, None)
    assert stored == values
