"""The challenges' part of the search. Private challenges are not in the index: no user finds them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Final

from plaza.challenges.model import Challenge
from plaza.challenges.service import Challenges
from plaza.challenges.tables import CHALLENGE
from plaza.core.auth import Actor
from plaza.core.root_path import with_root
from plaza.core.search_source import SearchDocument, SearchHit, count_in_table, keys_in_table
from plaza.core.sql import Sql

_FOUND: Final = CHALLENGE.c.is_public & CHALLENGE.c.deleted_ms.is_(None)


class ChallengeSearch:
    """Public challenges, by title."""

    kind: Final = "challenges"

    def __init__(self, sql: Sql, challenges: Challenges) -> None:
        self._sql = sql
        self._challenges = challenges

    async def documents(self, keys: Sequence[str]) -> dict[str, SearchDocument]:
        """Return public challenges. One statement."""
        found = await self._public(keys)
        return {key: _document(challenge) for key, challenge in found.items() if challenge is not None}

    def all_keys(self, after: str) -> AsyncIterator[Sequence[str]]:
        """Return the ids of all public challenges, oldest first."""
        return keys_in_table(self._sql, CHALLENGE.c.id, after, _FOUND)

    async def count(self, after: str) -> int:
        return await count_in_table(self._sql, CHALLENGE.c.id, after, _FOUND)

    async def load(self, viewer: Actor | None, keys: Sequence[str]) -> list[SearchHit | None]:
        """Return public challenges. One statement."""
        found = await self._public(keys)
        return [None if (challenge := found.get(key)) is None else _hit(challenge) for key in keys]

    async def preferred(self, viewer: Actor, keys: Sequence[str]) -> set[str]:
        return set()

    def changed_keys(self, event_type: str, subject: str, data: Mapping[str, Any]) -> Iterable[str]:
        return (str(data["challenge"]),) if event_type.startswith("challenge.") and "challenge" in data else ()

    async def _public(self, keys: Sequence[str]) -> dict[str, Challenge | None]:
        found = dict(zip(keys, await self._challenges.read_many(keys), strict=True))
        return {key: challenge for key, challenge in found.items() if challenge is not None and challenge.is_public}


def _document(challenge: Challenge) -> SearchDocument:
    return SearchDocument(
        texts=[challenge.title],
        author=challenge.creator,
        created_ms=challenge.created_at,
        weight=challenge.members,
    )


def _hit(challenge: Challenge) -> SearchHit:
    return SearchHit(
        id=str(challenge.id),
        title=challenge.title,
        text="",
        url=with_root(f"/app/challenges/{challenge.id}"),
        author=challenge.creator,
        created_at=challenge.created_at,
        figures={"members": challenge.members, "days": challenge.duration},
    )
