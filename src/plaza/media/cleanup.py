"""Deletes pictures that nothing shows: uploads that were never used, and those whose posts are gone.

Every picture is looked at once a day. The things that refer to it decide; a picture that any of them has, also a banned
post, stays. One that was used is deleted when it is seen unused twice, a day apart: so a day is left to notice that
Valkey lost its data.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from sqlalchemy import BigInteger, bindparam, delete, select, update

from plaza.core.clock import Clock
from plaza.core.pictures import PictureUse
from plaza.core.sql import Sql
from plaza.media.contents import Contents
from plaza.media.pictures import PictureVisibility
from plaza.media.tables import PICTURES, USES
from plaza.media.uploads import DAY_MS

# Pictures that are looked at together.
BATCH: Final = 200

_DUE = (
    select(PICTURES.c.id, PICTURES.c.check_ms, PICTURES.c.unused_ms)
    .where(PICTURES.c.check_ms <= bindparam("now", type_=BigInteger))
    .order_by(PICTURES.c.check_ms)
    .limit(BATCH)
)
_USES = select(USES).where(USES.c.picture_id.in_(bindparam("ids", expanding=True)))


class DuePicture(NamedTuple):
    id: str
    check_ms: int
    unused_ms: int | None


class PictureCleanup:
    """Deletes unused pictures."""

    def __init__(self, sql: Sql, contents: Contents, visibility: PictureVisibility, clock: Clock) -> None:
        self._sql = sql
        self._contents = contents
        self._visibility = visibility
        self._clock = clock

    async def delete_unused(self) -> int:
        """Look at the pictures that are due, and delete those that nothing shows; return how many."""
        deleted = 0
        while due := await self._due():
            deleted += await self._check(due)
        return deleted

    async def _due(self) -> list[DuePicture]:
        async with self._sql.read() as tx:
            rows = await tx.execute(_DUE, {"now": self._clock.now_ms()})
            return [DuePicture(row.id, row.check_ms, row.unused_ms) for row in rows]

    async def _check(self, due: list[DuePicture]) -> int:
        """Decide about some pictures, and return how many were deleted."""
        async with self._sql.read() as tx:
            rows = (await tx.execute(_USES, {"ids": [picture.id for picture in due]})).all()
        uses = [(PictureUse(row.kind, row.thing), str(row.picture_id)) for row in rows]
        states = await self._visibility.states(uses)
        was_used = {picture for _, picture in uses}
        shown = {picture for (_, picture), state in zip(uses, states, strict=True) if state != "gone"}
        now = self._clock.now_ms()
        async with self._sql.begin() as tx:
            await _set(tx, shown, check_ms=now + DAY_MS, unused_ms=None)
            fresh = [each.id for each in due if each.id in was_used - shown and each.unused_ms is None]
            await _set(tx, fresh, check_ms=now + DAY_MS, unused_ms=now)
            digests = []
            for picture in due:
                if picture.id not in shown and picture.id not in fresh:
                    digests += await self._delete(tx, picture)
        await self._contents.delete_unused(digests)
        return len(digests)

    async def _delete(self, tx: Any, picture: DuePicture) -> list[str]:
        """Delete a picture and return its contents, unless it was claimed meanwhile: then it is due later."""
        same = (PICTURES.c.id == picture.id, PICTURES.c.check_ms == picture.check_ms)
        deleted = await tx.execute(delete(PICTURES).where(*same).returning(PICTURES.c.digest))
        return [str(row.digest) for row in deleted]


async def _set(tx: Any, ids: Iterable[str], **values: int | None) -> None:
    await tx.execute(update(PICTURES).where(PICTURES.c.id.in_(list(ids))).values(**values))
