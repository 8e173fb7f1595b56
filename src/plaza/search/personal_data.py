"""What the index has of a user follows from the other domains, so it is indexed again when they have changed."""

from __future__ import annotations

from typing import Any

from plaza.search.indexer import Indexer


class SearchPersonalData:
    """A user's documents in the index. An export has none of them: they repeat what the other domains export."""

    def __init__(self, indexer: Indexer) -> None:
        self._indexer = indexer

    async def export(self, username: str) -> dict[str, Any]:
        return {}

    async def delete(self, username: str) -> None:
        """Index what is left of a user. What is deleted later has events, which the index follows."""
        await self._indexer.refresh_author(username)

    async def rename(self, old: str, new: str) -> None:
        """Index a user's documents under the new name."""
        await self._indexer.refresh_author(old)
