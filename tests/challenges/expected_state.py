"""What Valkey must hold, computed in the plainest way from all rows of the tables and the day."""

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
from plaza.challenges.model import date_of
from plaza.challenges.tables import BY_NAME
from plaza.core.keyspace import Key, Layout
from tests.challenges.conftest import MAX_POST_AGE, World


async def expected(world: World, today: int) -> dict[str, Any]:
    rows: dict[str, list[Any]] = {}
    async with world.sql.read() as tx:
        for name, table in BY_NAME.items():
            rows[name] = list((await tx.execute(select(table))).all())
    truth: dict[str, Any] = {
        RS_PARAM(): {
            "max_post_age": str(MAX_POST_AGE),
            "distinct_category": "5",
            "day_index": str(today % MAX_POST_AGE),
        },
        DB_LEN(): {name: str(len(found)) for name, found in rows.items()},
    }
    challenges = {row.id: row for row in rows["clg"]}
    going = {row.id for row in rows["clg"] if row.ends_day > today}
    truth[ON_CLG_INFO()] = {
        str(id): f"{c.category},{int(c.is_public)},{c.duration},{date_of(c.ends_day)}"
        for id, c in challenges.items()
        if id in going
    }
    pool = {
        p.id: p
        for p in rows["post"]
        if p.challenge_id in going
        and challenges[p.challenge_id].is_public
        and not p.is_break
        and 0 <= today - p.day < MAX_POST_AGE
    }
    truth[POST_CLG_PAIR()] = {str(id): str(p.challenge_id) for id, p in pool.items()}
    for category in range(1, 6):
        inside = {id: p for id, p in pool.items() if challenges[p.challenge_id].category == category}
        truth[RECENT_POSTS(category)] = {str(id): p.day % MAX_POST_AGE for id, p in inside.items()}
    liked: dict[str, Any] = defaultdict(set)
    preference: dict[str, Counter[str]] = defaultdict(Counter)
    for r in rows["reaction"]:
        if r.post_id in pool:
            liked[LIKED_POSTS(r.username)].add(str(r.post_id))
        if r.challenge_id in going:
            preference[CLGS_PREFERENCE(r.username)][str(r.challenge_id)] += 1
    days: dict[str, list[int]] = defaultdict(lambda: [0] * 5)
    for t in rows["tracking"]:
        days[t.username][challenges[t.challenge_id].category - 1] += 1
    truth[USER_CONTRIBUTION()] = {name: ",".join(map(str, five)) for name, five in days.items()}
    truth |= liked | {key: dict(counts) for key, counts in preference.items()}
    return {key: value for key, value in truth.items() if value}  # an absent key is an empty one


async def found(redis_client: Any) -> dict[str, Any]:
    """Every documented key, as a client that knows nothing of Plaza reads it."""
    held: dict[str, Any] = {}
    names = (
        await redis_client.keys("*")
        if Key.layout is Layout.PLAIN
        else await redis_client.keys("*", target_nodes="primaries")
    )
    for name in names:
        if ":" in name:  # no documented key of challenges has one
            continue
        kind = await redis_client.type(name)
        if kind == "hash":
            held[name] = await redis_client.hgetall(name)
        elif kind == "set":
            held[name] = await redis_client.smembers(name)
        elif kind == "zset":
            held[name] = dict(await redis_client.zrange(name, 0, -1, withscores=True))
    return held


async def assert_true(world: World, redis_client: Any, *, but: str = "") -> None:
    truth, held = await expected(world, world.derived.today()), await found(redis_client)
    truth.pop(but, None)
    held.pop(but, None)
    assert held == truth
