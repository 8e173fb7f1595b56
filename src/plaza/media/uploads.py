"""Uploads: a file becomes a picture of the user who sent it, within the limits of each user."""

from __future__ import annotations

import math
import uuid
from typing import IO, Any, Final

from sqlalchemy import bindparam, func, select
from sqlalchemy.exc import IntegrityError

from plaza.core.auth import Actor
from plaza.core.clock import Clock
from plaza.core.errors import TooLarge, Unauthenticated, Unavailable
from plaza.core.functions import Functions
from plaza.core.pictures import StoredPicture
from plaza.core.rate_limits import Limiter, Policy, Quota, RateLimited
from plaza.core.settings import Settings
from plaza.core.sql import Sql
from plaza.core.sql_events import add_events
from plaza.core.username_locks import lock_username, take_exclusive_lock
from plaza.media.contents import Contents, WrittenContent
from plaza.media.events import STREAM, MediaUploaded
from plaza.media.model import DailyUploadsUsed, QuotaUsed
from plaza.media.processor import ImageProcessor, ProcessedImage
from plaza.media.tables import CONTENTS, PICTURES

DAY_SECONDS: Final = 86_400
DAY_MS: Final = DAY_SECONDS * 1000

_BY_ID = (
    select(PICTURES.c.id, CONTENTS.c.width, CONTENTS.c.height, CONTENTS.c.blurhash, PICTURES.c.alt)
    .join(CONTENTS)
    .where(PICTURES.c.id == bindparam("id"))
)
_USED_BYTES = select(func.coalesce(func.sum(PICTURES.c.bytes), 0)).where(PICTURES.c.owner == bindparam("owner"))


class Uploads:
    """Takes uploads."""

    def __init__(
        self,
        sql: Sql,
        functions: Functions,
        contents: Contents,
        processor: ImageProcessor,
        clock: Clock,
        settings: Settings,
    ) -> None:
        self._sql = sql
        self._valkey = functions.valkey
        self._contents = contents
        self._processor = processor
        self._clock = clock
        self._settings = settings
        # The daily limits are rate limits with a long window: what was used comes back evenly.
        quotas = {
            "upload": Quota(settings.media_daily_uploads, DAY_SECONDS),
            "upload_kb": Quota(_kilobytes(settings.media_daily_bytes), DAY_SECONDS),
        }
        policies = {kind: Policy(user=quota, address=quota) for kind, quota in quotas.items()}
        self._limiter = Limiter(functions, on=settings.rate_limits, policies=policies)

    async def create(
        self, actor: Actor, content: IO[bytes], size: int, filename: str, alt: str, operation: str
    ) -> StoredPicture:
        """Store a picture of the caller; the same operation run twice stores one.

        Decoding takes about a second of CPU, in another process. The rest is a transaction, two round trips and the
        writing of the files.
        """
        id = str(uuid.UUID(hex=operation, version=4))
        known = await self.find(id)
        if known is not None:  # an earlier run of the operation stored it
            return known
        if size > self._settings.media_max_bytes:
            limit = self._settings.media_max_bytes
            raise TooLarge(f"The picture has more than {limit / 1e6:g} MB. Send a smaller one.", limit=limit)
        await self._count(actor, size)
        return await self.store(await self._processor.process(content, filename), id, actor, alt.strip())

    async def find(self, id: str) -> StoredPicture | None:
        """Return a picture by its id; None if there is none. One short read."""
        rows = await self._sql.fetch_all(_BY_ID, id=id)
        return stored_picture(rows[0]) if rows else None

    async def store(
        self, image: ProcessedImage, id: str, owner: Actor | None, alt: str, origin: str = ""
    ) -> StoredPicture:
        """Store a processed picture of a user, or, without a limit, of Plaza itself. `origin` is that of the event."""
        now = self._clock.now_ms()
        row = {
            "id": id,
            "owner": "" if owner is None else owner.name,
            "alt": alt,
            "bytes": sum(file.bytes for file, _ in image.files),
            "created_ms": now,
            "check_ms": now + DAY_MS,
        }
        for _ in range(3):
            written = await self._contents.write(image)
            try:
                await self._insert(row, written, owner, origin)
            except IntegrityError:  # the contents that it shares were deleted meanwhile
                continue
            return StoredPicture(id, image.width, image.height, image.blurhash, alt)
        raise Unavailable("The same picture is being deleted. Try again.")

    async def _insert(self, row: dict[str, Any], written: WrittenContent, owner: Actor | None, origin: str) -> None:
        """Insert a picture, and its contents if they are new."""
        try:
            async with self._sql.begin() as tx:
                if owner is not None:
                    await lock_username(tx, self._valkey, owner.name, owner.since_ms)
                    await take_exclusive_lock(tx, f"pictures of {owner.name}")
                    used = (await tx.execute(_USED_BYTES, {"owner": owner.name})).scalar_one()
                    self._require_space(int(used), row["bytes"])
                inserted = written.path is not None and await self._contents.insert(tx, written)
                values = {**row, "digest": written.digest}
                statement = self._sql.insert(PICTURES).values(values).on_conflict_do_nothing()
                is_new = (await tx.execute(statement.returning(PICTURES.c.id))).one_or_none() is not None
                if is_new and owner is not None:
                    await add_events(tx, STREAM, [MediaUploaded(row["id"], owner.name)], row["created_ms"], origin)
        except (IntegrityError, QuotaUsed, Unauthenticated):
            # After other errors the row may exist, if only the answer to the commit was lost.
            await self._contents.discard(written)
            raise
        if not inserted:
            await self._contents.discard(written)

    async def _count(self, actor: Actor, size: int) -> None:
        """Refuse an upload that is more than the user may store, or may upload in a day."""
        used = (await self._sql.fetch_all(_USED_BYTES, owner=actor.name))[0][0]
        self._require_space(int(used), 1)
        try:
            await self._limiter.take("upload", actor.name, None)
            await self._limiter.take("upload_kb", actor.name, None, requests=_kilobytes(size))
        except RateLimited as error:
            count, megabytes = self._settings.media_daily_uploads, self._settings.media_daily_bytes / 1e6
            raise DailyUploadsUsed(
                f"You can upload {count} pictures and {megabytes:g} MB in a day. Try again later.",
                retry_after=error.retry_after,
            ) from None

    def _require_space(self, used: int, more: int) -> None:
        quota = self._settings.media_quota_bytes
        if used + more > quota:
            says = f"Your pictures use {used / 1e6:.1f} MB of {quota / 1e6:g} MB, too much for another. Delete some."
            raise QuotaUsed(says, quota=quota)


def stored_picture(row: Any) -> StoredPicture:
    return StoredPicture(row.id, row.width, row.height, row.blurhash, row.alt)


def _kilobytes(size: int) -> int:
    return max(1, math.ceil(size / 1000))
