"""What media stores about a user: export, deletion and renaming."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

from sqlalchemy import BigInteger, bindparam, delete, select, tuple_, update

from plaza.core.pictures import AVATAR
from plaza.core.sql import Sql
from plaza.core.streams import started
from plaza.core.username_locks import wait_for_username_locks
from plaza.core.zip_stream import ArchivedFile
from plaza.media.contents import Contents, decode_files, file_path
from plaza.media.object_store import MediaStore, MissingFile
from plaza.media.tables import CONTENTS, PICTURES, USES
from plaza.media.uploads import stored_picture

# Pictures that are read or deleted at once.
BATCH: Final = 100

_OF_OWNER = (
    select(
        PICTURES.c.id,
        CONTENTS.c.width,
        CONTENTS.c.height,
        CONTENTS.c.blurhash,
        CONTENTS.c.path,
        CONTENTS.c.files,
        PICTURES.c.alt,
        PICTURES.c.created_ms,
        PICTURES.c.bytes,
    )
    .join(CONTENTS)
    .where(
        PICTURES.c.owner == bindparam("owner"),
        tuple_(PICTURES.c.created_ms, PICTURES.c.id)
        > tuple_(bindparam("after_ms", type_=BigInteger), bindparam("after")),
    )
    .order_by(PICTURES.c.created_ms, PICTURES.c.id)
    .limit(BATCH)
)


class MediaPersonalData:
    """The pictures of a user (`PersonalData` and `PersonalFiles`)."""

    def __init__(self, sql: Sql, contents: Contents, store: MediaStore) -> None:
        self._sql = sql
        self._contents = contents
        self._store = store

    async def export(self, username: str) -> dict[str, Any]:
        """Return the pictures of a user, with their addresses. One read for each 100."""
        return {"pictures": self._exported(username)}

    async def _exported(self, username: str) -> AsyncIterator[dict[str, Any]]:
        async for row in self._rows(username):
            picture = stored_picture(row).picture()
            yield {"picture": picture, "created_at": row.created_ms, "bytes": row.bytes}

    async def _rows(self, username: str) -> AsyncIterator[Any]:
        """Yield the pictures of a user, oldest first."""
        after_ms, after = -1, ""
        while True:
            async with self._sql.read() as tx:
                values = {"owner": username, "after_ms": after_ms, "after": after}
                rows = (await tx.execute(_OF_OWNER, values)).all()
            for row in rows:
                yield row
            if len(rows) < BATCH:
                return
            after_ms, after = rows[-1].created_ms, rows[-1].id

    async def files(self, username: str) -> AsyncIterator[ArchivedFile]:
        """Yield the largest file of each picture. One that is deleted meanwhile is left out."""
        async for row in self._rows(username):
            file = next(file for file in decode_files(row.files) if file.variant == "large")
            try:
                chunks = await started(self._store.read(file_path(row.path, file), 0, file.bytes))
            except MissingFile:
                continue
            yield ArchivedFile(f"media/{row.id}.{file.format}", row.created_ms, chunks)

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
