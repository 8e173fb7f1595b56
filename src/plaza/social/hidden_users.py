"""The users that thousands of viewers must not see, for messages to open pages.

Few users block or mute others. Whether a viewer has such a list is cached in the process and invalidated by Valkey, so
only the lists that exist are read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from plaza.core.auth import Actor
from plaza.core.sequences import chunks
from plaza.core.tracking_cache import TrackingCache
from plaza.social.keys import USER_MUTED
from plaza.social.read_view import hiding_keys
from plaza.social.users import Users

# Three lists of each of 20,000 viewers.
MAX_CACHED: Final = 60_000
# Lists read at once.
BATCH: Final = 500


class HiddenUsers:
    """Reads who is hidden from many viewers: users they block or mute, and users who block them."""

    def __init__(self, users: Users) -> None:
        self._valkey = users.valkey
        self._exists: TrackingCache[bool] = TrackingCache(users.valkey, MAX_CACHED)

    async def hidden_from(self, viewers: Iterable[Actor], authors: Sequence[str]) -> Mapping[str, frozenset[str]]:
        """Return the authors that are hidden from viewers, by the viewer's name.

        One round trip for 500 lists that exist, and two for viewers who are new here.
        """
        lists = {key: viewer.name for viewer in viewers if not viewer.via_key for key in _lists(viewer)}
        for unknown in chunks([key for key in lists if self._exists.get(key) is None], BATCH):
            await asyncio.gather(*map(self._load, unknown))
        hidden: dict[str, frozenset[str]] = {}
        # A list that changed meanwhile is unknown again, and read too.
        for some in chunks([key for key in lists if self._exists.get(key) is not False], BATCH):
            found = await self._valkey.batch([("ZMSCORE", key, *authors) for key in some])
            for key, scores in zip(some, found, strict=True):
                names = [name for name, score in zip(authors, scores, strict=True) if score is not None]
                if names:
                    hidden[lists[key]] = hidden.get(lists[key], frozenset()).union(names)
        return hidden

    async def _load(self, key: str) -> None:
        async def read() -> bool:
            return bool(await self._valkey.call("EXISTS", key))

        await self._exists.load(key, read)


def _lists(viewer: Actor) -> tuple[str, ...]:
    return (*hiding_keys(viewer), USER_MUTED(viewer.name))
