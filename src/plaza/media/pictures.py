"""Stored pictures: what shows them, who may see them, and their deletion.

`media_uses` lists the things that may show a picture. Whether they do is read from the things themselves, when a
picture is requested and before it is deleted: a banned or deleted post hides its pictures at once, and no count of
references can be wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import bindparam, delete, func, select, update

from plaza.core.async_engine import AsyncConnection
from plaza.core.auth import Actor
from plaza.core.clock import Clock
from plaza.core.errors import Forbidden, Invalid, NotFound
from plaza.core.pictures import POST, PictureHost, PictureUse, StoredPicture, UseState, picture_path
from plaza.core.root_path import ROOT_PATH, public_url
from plaza.core.settings import Settings
from plaza.core.sql import Sql
from plaza.core.username_locks import lock_username
from plaza.core.valkey import Valkey
from plaza.media.contents import Contents
from plaza.media.model import DeletedPicture
from plaza.media.tables import CONTENTS, PICTURES, USES
from plaza.media.uploads import DAY_MS, stored_picture

# To decide whether a picture is visible, all things that show it may have to be read.
MAX_USES: Final = 100

_CLAIMED = (
    select(PICTURES.c.id, CONTENTS.c.width, CONTENTS.c.height, CONTENTS.c.blurhash, PICTURES.c.alt, PICTURES.c.owner)
    .join(CONTENTS)
    .where(PICTURES.c.id.in_(bindparam("ids", expanding=True)))
)
# PostgreSQL: a picture that is being deleted is waited for, and then missing.
_CLAIMED_LOCKED = _CLAIMED.with_for_update(read=True, key_share=True, of=PICTURES)
_OWNER = select(PICTURES.c.owner, PICTURES.c.digest).where(PICTURES.c.id == bindparam("id"))
_USES = select(USES.c.kind, USES.c.thing).where(USES.c.picture_id == bindparam("id"))
_USE_COUNTS = (
    select(USES.c.picture_id, func.count().label("uses"))
    .where(USES.c.picture_id.in_(bindparam("ids", expanding=True)))
    .group_by(USES.c.picture_id)
)


class PictureClaims:
    """Gives pictures to the things that will show them (`Pictures`)."""

    def __init__(self, sql: Sql, valkey: Valkey, clock: Clock, settings: Settings) -> None:
        self._sql = sql
        self._valkey = valkey
        self._clock = clock
        self._settings = settings

    async def claim(self, actor: Actor, ids: Sequence[str], use: PictureUse) -> list[StoredPicture]:
        """Return pictures of the caller that a thing will show, and do not delete them while it is being written.

        Raises `Invalid` if one does not exist or is not theirs. One transaction.
        """
        async with self._sql.begin() as tx:
            await lock_username(tx, self._valkey, actor.name, actor.since_ms)
            pictures = await self._read_own(tx, [actor.name], ids, is_list=use.kind == POST)
            await self.add_use(tx, ids, use)
        return pictures

    async def deleted(self, ids: Sequence[str]) -> list[str]:
        """Return those of these pictures that no longer exist. One short read."""
        found = {row.id for row in await self._sql.fetch_all(_CLAIMED, ids=list(ids))}
        return [id for id in ids if id not in found]

    async def adopt(self, tx: AsyncConnection, actor: Actor, ids: Sequence[str]) -> list[StoredPicture]:
        """Make pictures Plaza's own, for a thing without an owner, in the caller's transaction and first in it.

        An admin gives their own pictures, the API key anyone's. Raises `Invalid` otherwise.
        """
        await lock_username(tx, self._valkey, actor.name, actor.since_ms)
        pictures = await self._read_own(tx, None if actor.via_key else ["", actor.name], ids, is_list=True)
        await tx.execute(update(PICTURES).where(PICTURES.c.id.in_(ids)).values(owner=""))
        return pictures

    async def _read_own(
        self, tx: AsyncConnection, owners: Sequence[str] | None, ids: Sequence[str], *, is_list: bool
    ) -> list[StoredPicture]:
        """Return pictures of these owners, or of any. Errors name the position in a list."""
        found = {row.id: row for row in await tx.execute(_CLAIMED_LOCKED, {"ids": list(ids)})}
        counts = {row.picture_id: row.uses for row in await tx.execute(_USE_COUNTS, {"ids": list(ids)})}
        for position, id in enumerate(ids):
            field = f"media[{position}]" if is_list else "media"
            if id not in found or (owners is not None and found[id].owner not in owners):
                raise Invalid("None of your pictures has this id. Upload it first.", field=field)
            if counts.get(id, 0) >= MAX_USES:
                raise Invalid(f"The picture is shown in {MAX_USES} places. Upload it again.", field=field)
        return [stored_picture(found[id]) for id in ids]

    async def add_use(self, tx: AsyncConnection, ids: Sequence[str], use: PictureUse) -> None:
        """Record that a thing shows pictures, in the transaction that writes the thing."""
        if not ids:
            return
        later = self._clock.now_ms() + DAY_MS
        await tx.execute(update(PICTURES).where(PICTURES.c.id.in_(ids)).values(check_ms=later, unused_ms=None))
        rows = [{"picture_id": id, "kind": use.kind, "thing": use.id} for id in ids]
        await tx.execute(self._sql.insert(USES).values(rows).on_conflict_do_nothing())

    def address(self, id: str, variant: str) -> str:
        """Return the address of a picture for other services: absolute if `PLAZA_PUBLIC_URL` is set."""
        base = public_url(self._settings) if self._settings.public_url else ROOT_PATH.get() or self._settings.mount_path
        return base + picture_path(id, variant)


class PictureVisibility:
    """Decides from the things that show a picture whether it is visible."""

    def __init__(self, hosts: Mapping[str, PictureHost]) -> None:
        self.hosts = hosts

    async def states(self, uses: Sequence[tuple[PictureUse, str]]) -> list[UseState]:
        """Return the state of each use of a picture. One round trip for each kind of thing."""
        states: dict[tuple[PictureUse, str], UseState] = {}
        for kind, host in self.hosts.items():
            of_kind = [pair for pair in uses if pair[0].kind == kind]
            if of_kind:
                found = await host.states([(use.id, picture) for use, picture in of_kind])
                states.update(zip(of_kind, found, strict=True))
        # What a domain that does not run refers to is not shown, and not deleted.
        return [states.get(pair, "hidden") for pair in uses]


class PictureDeletion:
    """Deletes pictures, from everything that shows them."""

    def __init__(self, sql: Sql, contents: Contents, visibility: PictureVisibility) -> None:
        self._sql = sql
        self._contents = contents
        self._hosts = visibility.hosts

    async def delete(self, actor: Actor, id: str) -> DeletedPicture:
        """Delete a picture (its owner or an admin). What shows it stops showing it first.

        What begins to show it meanwhile stops afterwards: it is removed here, or by its writer (`Pictures.deleted`).
        """
        found = await self._sql.fetch_all(_OWNER, id=id)
        if not found:
            raise no_picture(id)
        owner, digest = found[0].owner, found[0].digest
        if owner != actor.name and not actor.is_admin:
            raise Forbidden("Only its owner or an admin can delete a picture.")
        await self._remove(id, await self._sql.fetch_all(_USES, id=id))
        async with self._sql.begin() as tx:
            uses = (await tx.execute(_USES, {"id": id})).all()
            await tx.execute(delete(PICTURES).where(PICTURES.c.id == id))
        await self._remove(id, uses)
        await self._contents.delete_unused([digest])
        return DeletedPicture(id, True)

    async def _remove(self, id: str, uses: Iterable[Any]) -> None:
        """Remove a picture from the things that show it. Two round trips each."""
        for use in uses:
            if use.kind in self._hosts:
                await self._hosts[use.kind].remove(use.thing, id)


def no_picture(id: str) -> NotFound:
    return NotFound("No picture has this id.", id=id)
