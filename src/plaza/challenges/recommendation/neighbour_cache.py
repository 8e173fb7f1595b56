"""A cache of challenges' stored neighbours, in the process.

A request needs those of up to two hundred challenges, 2 kB each, and training replaces them once a day. `db_len:cursor`
says from which rows the model was made: when that changes, the cache is emptied. It is emptied from time to time too,
since a rebuild makes a new model from the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import Final

from plaza.challenges.keys import CLG_NEIGHBOURS, COUNTS, DB_CURSOR
from plaza.core.valkey import Valkey

MAX_CACHED: Final = 8_000
MAX_AGE_SECONDS: Final = 600.0


class NeighbourCache:
    """Stored neighbours by challenge, of one model."""

    def __init__(self, valkey: Valkey) -> None:
        self._valkey = valkey
        self._cached: dict[int, bytes | None] = {}
        self._model: str | None = None
        self._expires = 0.0

    async def read(self, ids: Sequence[int]) -> list[bytes | None]:
        """The stored neighbours of these challenges. One round trip, and one more if there is a new model."""
        if not ids:
            return []
        if monotonic() > self._expires or len(self._cached) + len(ids) > MAX_CACHED:
            self._empty()
        missing = [id for id in ids if id not in self._cached]
        model, found = await self._fetch(missing)
        if model != self._model:
            self._empty()
            self._model = model
            if len(missing) < len(ids):
                _, found = await self._fetch(ids)
        self._cached |= found
        return [found[id] if id in found else self._cached.get(id) for id in ids]

    def _empty(self) -> None:
        self._cached = {}
        self._expires = monotonic() + MAX_AGE_SECONDS

    async def _fetch(self, ids: Sequence[int]) -> tuple[str | None, dict[int, bytes | None]]:
        """The model's description and the neighbours of these challenges, from Valkey."""
        model_command = ("HGET", DB_CURSOR(COUNTS), "model")
        if not ids:  # on the connection of other commands, and sent together with them
            return await self._valkey.call(*model_command), {}
        model, *values = await self._valkey.batch(
            [model_command, *(("GET", CLG_NEIGHBOURS(id)) for id in ids)], raw=True
        )
        return None if model is None else model.decode(errors="replace"), dict(zip(ids, values, strict=True))
