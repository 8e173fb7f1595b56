"""Plaza and another program change the tables of challenges at the same time, and nothing is lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from tests.other_services.challenges_service import ChallengesService, today
from tests.other_services.interleaving import USERS, Slots, interleave, is_ours
from tests.other_services.running import PlazaBesideOthers


class ChallengesTraffic:
    """Users take part in challenges through Plaza, and another program inserts and deletes rows with SQL."""

    def __init__(self, beside: PlazaBesideOthers) -> None:
        self.beside = beside
        self.other = ChallengesService(beside)
        self.slots = Slots()
        self.challenges: list[int] = []
        self.posts: dict[int, int] = {}
        self.tracked: set[tuple[int, str, int]] = set()
        self.reactions: dict[tuple[int, str], bool] = {}

    async def start(self) -> None:
        for category in (1, 2, 3):
            id = self.other.challenge(f"Challenge {category}", category)
            self.challenges.append(id)
            for name in USERS:
                self.other.member(id, name)
            self.posts[self.other.post(id, USERS[0], "First.")] = id

    @property
    def operations(self) -> list[Any]:
        return [self.post, self.react, self.react, self.track, self.roll]

    async def _send(self, method: str, path: str, name: str, body: Any = None) -> Any:
        answer = await self.beside.send(method, path, name, body)
        assert answer.status_code in (200, 201), f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json()

    async def post(self, dice: random.Random) -> None:
        challenge, name = dice.choice(self.challenges), dice.choice(USERS)
        if len(self.posts) > 30:
            return
        if is_ours(dice):
            made = await self._send("POST", f"/challenges/{challenge}/posts", name, {"text": "Done."})
            self.posts[made["id"]] = challenge
        else:
            id = await asyncio.to_thread(self.other.post, challenge, name, "Done.", age=dice.randrange(3))
            self.posts[id] = challenge

    async def react(self, dice: random.Random) -> None:
        post, name = dice.choice([*self.posts]), dice.choice(USERS)
        async with self.slots.take((post, name)):
            on = not self.reactions.get((post, name), False)
            if is_ours(dice):
                await self._send("PUT" if on else "DELETE", f"/challenges/posts/{post}/reaction", name)
            elif on:
                await asyncio.to_thread(self.other.reaction, self.posts[post], post, name)
            else:
                await asyncio.to_thread(self.other.delete, "reaction", post_id=post, username=name)
            self.reactions[post, name] = on

    async def track(self, dice: random.Random) -> None:
        challenge, name = dice.choice(self.challenges), dice.choice(USERS)
        async with self.slots.take(("track", challenge, name)):
            if is_ours(dice):
                if (challenge, name, 0) not in self.tracked:
                    self.tracked.add((challenge, name, 0))
                    await self._send("POST", f"/challenges/{challenge}/track", name, {})
                return
            age = dice.randrange(1, 10)
            if (challenge, name, age) in self.tracked:
                values = {"challenge_id": challenge, "username": name, "day": today() - age}
                await asyncio.to_thread(self.other.delete, "tracking", **values)
                self.tracked.discard((challenge, name, age))
            else:
                await asyncio.to_thread(self.other.tracking, challenge, name, age=age)
                self.tracked.add((challenge, name, age))

    async def roll(self, dice: random.Random) -> None:
        if dice.random() < 0.2:
            answer = await self.beside.http.post("/challenges/roll", headers=self.beside.api_key)
            assert answer.status_code in (200, 409), answer.text

    async def assert_nothing_lost(self) -> None:
        """Compare rows with what was done, and keys with rows."""
        assert {row["id"]: row["challenge_id"] for row in self.other.rows("post")} == self.posts
        rows = self.other.rows("reaction")
        assert {(row["post_id"], row["username"]) for row in rows} == {key for key, on in self.reactions.items() if on}
        tracked = {(row["challenge_id"], row["username"], today() - row["day"]) for row in self.other.rows("tracking")}
        assert tracked == self.tracked
        stored = await self.beside.documented_keys()
        assert stored == self.other.derive()


async def test_challenge_programs_interleave_without_a_loss(
    beside: PlazaBesideOthers, audits_without_pauses: Callable[[], None]
) -> None:
    traffic = ChallengesTraffic(beside)
    await traffic.start()
    await interleave(beside, traffic.operations)
    rolled = await beside.http.post("/challenges/roll", headers=beside.api_key)
    assert rolled.status_code == 200, rolled.text
    await traffic.assert_nothing_lost()
    audits_without_pauses()
    report = await beside.repair()
    assert not report.groups, report.groups
    await traffic.assert_nothing_lost()
