"""Another program for challenges: it writes the SQL tables, and the keys by the document as its nightly job does."""

from __future__ import annotations

import contextlib
import datetime
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from tests.other_services.running import PlazaBesideOthers

DAY_SECONDS = 86_400


def today() -> int:
    return int(time.time()) // DAY_SECONDS


class ChallengesService:
    """Writes rows with plain SQL, and derives the documented keys from them."""

    def __init__(self, beside: PlazaBesideOthers) -> None:
        self.client: Any = beside.client
        self.owned = beside.owned
        self.max_post_age = beside.plaza.core.settings.max_post_age
        self._path = beside.plaza.core.settings.data_dir / "plaza.sqlite"

    @contextlib.contextmanager
    def database(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self._path, timeout=60)
        connection.row_factory = sqlite3.Row
        try:
            with connection:
                yield connection
        finally:
            connection.close()

    def insert(self, table: str, **values: Any) -> int:
        columns, marks = ", ".join(values), ", ".join("?" * len(values))
        with self.database() as connection:
            id = connection.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", [*values.values()]).lastrowid
        assert id is not None
        return id

    def delete(self, table: str, **values: Any) -> None:
        condition = " AND ".join(f"{column} = ?" for column in values)
        with self.database() as connection:
            connection.execute(f"DELETE FROM {table} WHERE {condition}", [*values.values()])

    def challenge(self, title: str, category: int, *, days: int = 21, is_public: bool = True) -> int:
        return self.insert(
            "challenge",
            title=title,
            category=category,
            is_public=is_public,
            duration=abs(days),
            creator="ana",
            created_ms=round(time.time() * 1000),
            ends_day=today() + days,
        )

    def member(self, challenge: int, username: str) -> int:
        return self.insert("member", challenge_id=challenge, username=username, joined_day=today())

    def post(self, challenge: int, username: str, text: str, *, age: int = 0, is_break: bool = False) -> int:
        return self.insert(
            "post",
            challenge_id=challenge,
            username=username,
            text=text,
            is_break=is_break,
            created_ms=round((time.time() - age * DAY_SECONDS) * 1000),
            day=today() - age,
        )

    def reaction(self, challenge: int, post: int, username: str) -> int:
        values = {"post_id": post, "challenge_id": challenge, "username": username}
        return self.insert("reaction", **values, created_ms=round(time.time() * 1000))

    def tracking(self, challenge: int, username: str, *, age: int = 0) -> int:
        return self.insert("tracking", challenge_id=challenge, username=username, day=today() - age)

    def rows(self, table: str) -> list[Any]:
        with self.database() as connection:
            return connection.execute(f"SELECT * FROM {table}").fetchall()

    def derive(self) -> dict[str, Any]:
        """Return what the documented keys must have by the tables."""
        tables = {"clg": "challenge", "mmbr": "member", "post": "post", "reaction": "reaction", "tracking": "tracking"}
        rows = {short: self.rows(name) for short, name in tables.items()}
        age, day = self.max_post_age, today()
        found: dict[str, Any] = {
            "rs_param": {"max_post_age": str(age), "distinct_category": "5", "day_index": str(day % age)},
            "db_len": {short: str(len(found)) for short, found in rows.items()},
        }
        challenges = {row["id"]: row for row in rows["clg"]}
        ongoing = {id: row for id, row in challenges.items() if row["ends_day"] > day}
        found["on_clg_info"] = {
            str(id): f"{row['category']},{row['is_public']},{row['duration']},{_iso(row['ends_day'])}"
            for id, row in ongoing.items()
        }
        public = {id for id, row in ongoing.items() if row["is_public"]}
        pool = [
            row
            for row in rows["post"]
            if row["challenge_id"] in public and not row["is_break"] and 0 <= day - row["day"] < age
        ]
        found["post_clg_pair"] = {str(row["id"]): str(row["challenge_id"]) for row in pool}
        for row in pool:
            category = challenges[row["challenge_id"]]["category"]
            found.setdefault(f"recent_posts_for_category{category}", {})[str(row["id"])] = float(row["day"] % age)
        for row in rows["reaction"]:
            user = self.owned(row["username"])
            found.setdefault(f"{user}_liked_posts", set()).add(str(row["post_id"]))
            found.setdefault(f"{user}_clgs_preference", Counter())[str(row["challenge_id"])] += 1
        days: dict[str, list[int]] = {}
        for row in rows["tracking"]:
            five = days.setdefault(row["username"], [0] * 5)
            five[challenges[row["challenge_id"]]["category"] - 1] += 1
        found["user_contribution"] = {name: ",".join(map(str, five)) for name, five in days.items()}
        return {key: value for key, value in found.items() if value}

    async def run_nightly_job(self) -> None:
        """Write every documented key."""
        for key, value in self.derive().items():
            if isinstance(value, set):
                await self.client.sadd(key, *value)
            elif key.startswith("recent_posts") or key.endswith("_preference"):
                await self.client.zadd(key, dict(value))
            else:
                await self.client.hset(key, mapping=value)


def _iso(day: int) -> str:
    return (datetime.date(1970, 1, 1) + datetime.timedelta(days=day)).isoformat()
