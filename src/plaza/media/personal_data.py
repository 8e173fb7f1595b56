"""What media stores about a user: export, deletion and renaming."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import bindparam, delete, select, update

from plaza.core.pictures import AVATAR
from plaza.core.sql import Sql
from plaza.core.username_locks import wait_for_username_locks
from plaza.media.contents import Contents
from plaza.media.tables import CONTENTS, PICTURES, USES
from plaza.media.uploads import stored_picture

# Pictures that are deleted at once.
BATCH: Final = 100

_OF_OWNER = (
    select(
        PICTURES.c.id,
        CONTENTS.c.width,
        CONTENTS.c.height,
        CONTENTS.c.blurhash,
        PICTURES.c.alt,
        PICTURES.c.created_ms,
        PICTURES.c.bytes,
    )
    .join(CONTENTS)
    .where(PICTURES.c.owner == bindparam("owner"))
    .order_by(PICTURES.c.created_ms, PICTURES.c.id)
)


class MediaPersonalData:
    """The pictures of a user."""

    def __init__(self, sql: Sql, contents: Contents) -> None:
        self._sql = sql
        self._contents = contents

    async def export(self, username: str) -> dict[str, Any]:
        """Return the pictures of a user, with their addresses."""
        async with self._sql.read() as tx:
            rows = (await tx.execute(_OF_OWNER, {"owner": username})).all()
        pictures = [
            {"picture": stored_picture(row).picture(), "created_at": row.created_ms, "bytes": row.bytes} for row in rows
        ]
        return {"pictures": pictures}

    async def delete(self, username: str) -> None:
        """Delete a user's pictures, and the files that no other user's picture has. Repeatable."""
        await wait_for_username_locks(self._sql, username)
        batch = select(PICTURES.c.id).where(PICTURES.c.owner == username).order_by(PICTURES.c.id).limit(BATCH)
        deletion = delete(PICTURES).where(PICTURES.c.id.in_(batch)).returning(PICTURES.c.digest)
        while True:
            async with self._sql.begin() as tx:
                digests = [str(row.digest) for row in await tx.execute(deletion)]
            if not digests:
                return
            await self._contents.delete_unused(digests)

    async def rename(self, old: str, new: str) -> None:
        """Give a user's pictures to a new username. Repeatable."""
        await wait_for_username_locks(self._sql, old)
        async with self._sql.begin() as tx:
            await tx.execute(update(PICTURES).where(PICTURES.c.owner == old).values(owner=new))
            await tx.execute(update(USES).where(USES.c.kind == AVATAR, USES.c.thing == old).values(thing=new))
