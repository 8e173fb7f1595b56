"""Which items show a picture, for media (`PictureHost`)."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, select, update

from plaza.core.pictures import UseState, decode_stored, encode_pictures
from plaza.core.sql import Sql
from plaza.shop.items import Items
from plaza.shop.tables import ITEMS

_MEDIA = select(ITEMS.c.id, ITEMS.c.media).where(ITEMS.c.id.in_(bindparam("ids", expanding=True)))


class ItemPictures:
    """Asks the items."""

    def __init__(self, sql: Sql, items: Items) -> None:
        self._sql = sql
        self._items = items

    async def states(self, uses: Sequence[tuple[str, str]]) -> list[UseState]:
        """Return whether each item shows the picture. One short read."""
        rows = await self._sql.fetch_all(_MEDIA, ids=[int(item) for item, _ in uses])
        media = {str(row.id): row.media or "" for row in rows}
        return ["visible" if f'"{picture}"' in media.get(item, "") else "gone" for item, picture in uses]

    async def remove(self, id: str, picture: str) -> None:
        """Remove a picture from an item, its cached row and its pages."""
        async with self._sql.begin() as tx:
            row = (await tx.execute(select(ITEMS).where(ITEMS.c.id == int(id)).with_for_update())).one_or_none()
            if row is None:
                return
            left = [each for each in decode_stored(row.media) if each.id != picture]
            values = {"media": encode_pictures(left) or None, "version": ITEMS.c.version + 1}
            await tx.execute(update(ITEMS).where(ITEMS.c.id == int(id)).values(values))
        await self._items.reload_many([int(id)])
