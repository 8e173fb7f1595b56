"""Pictures as records: their files in base64, their owners, and the posts and avatars that show them.

Files are written as they are, not decoded again: the hash of all files of a picture is part of its record.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from sqlalchemy import collate, select

from plaza.app import Plaza
from plaza.community.challenge_records import NameOrNone
from plaza.community.records import CommunityPart, Record, RowRecords, TablePart
from plaza.community.social_export import PAGE, SocialExport, own_picture
from plaza.community.social_records import apply_one
from plaza.core.auth import Actor
from plaza.core.errors import Invalid, NotFound
from plaza.core.picture_variants import VARIANT_WIDTHS
from plaza.core.pictures import PictureId, StoredPicture, decode_stored, encode_pictures
from plaza.core.sequences import chunks
from plaza.media.contents import Contents, content_digest, decode_files, file_path
from plaza.media.object_store import MediaStore, MissingFile
from plaza.media.pictures import PictureClaims
from plaza.media.processor import ImageFile, ProcessedImage
from plaza.media.tables import CONTENTS, PICTURES, USES
from plaza.media.uploads import DAY_MS
from plaza.social import keys as k
from plaza.social.inbound_sync import Status, SyncResult
from plaza.social.model import MAX_PICTURES, Millis, PostId, Profile, Username
from plaza.social.users import Users

Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Pixels = Annotated[int, Meta(ge=1, le=100_000)]


class _FileRecord(msgspec.Struct, forbid_unknown_fields=True):
    variant: Annotated[str, Meta(pattern=f"^({'|'.join(VARIANT_WIDTHS)})$")]
    format: Literal["webp", "jpeg"]
    data: bytes  # base64


class _ContentRecord(msgspec.Struct, forbid_unknown_fields=True):
    digest: Digest
    width: Pixels
    height: Pixels
    blurhash: Annotated[str, Meta(max_length=40)]
    files: Annotated[list[_FileRecord], Meta(min_length=1, max_length=20)]


class _PictureRecord(msgspec.Struct, forbid_unknown_fields=True):
    id: PictureId
    owner: NameOrNone  # empty for a picture of Plaza itself, as of a shop item
    digest: Digest
    alt: str
    bytes: Annotated[int, Meta(ge=0)]
    created_ms: Millis


class _UseRecord(msgspec.Struct, forbid_unknown_fields=True):
    picture_id: PictureId
    kind: Annotated[str, Meta(max_length=20)]
    thing: Annotated[str, Meta(max_length=64)]


class _PostPicturesRecord(msgspec.Struct, forbid_unknown_fields=True):
    post_id: PostId
    media: Annotated[list[StoredPicture], Meta(min_length=1, max_length=MAX_PICTURES)]
    is_address: bool  # whether the first one's address is the post's `media_url`


class _AvatarRecord(msgspec.Struct, forbid_unknown_fields=True):
    username: Username
    picture_id: PictureId


class PicturePart(CommunityPart):
    """The records of pictures."""

    kinds: Sequence[str] = ("picture_content", "picture", "picture_use", "post_pictures", "avatar")

    def __init__(self, plaza: Plaza, social: SocialExport) -> None:
        core = plaza.core
        self._sql, self._valkey, self._functions = core.sql, core.valkey, core.functions
        self._store = MediaStore.open(core.settings)
        self._contents = Contents(core.sql, self._store, core.clock)
        self._claims = plaza.get(PictureClaims)
        self._users = plaza.get(Users)
        self._social = social
        later = core.clock.now_ms() + DAY_MS
        rows = {
            "picture": RowRecords(PICTURES, _PictureRecord, added=lambda row: {"check_ms": later}),
            "picture_use": RowRecords(USES, _UseRecord),
        }
        self._tables = TablePart(core.sql, rows)
        self._handlers: dict[str, tuple[type, Callable[[Any], Awaitable[Status]]]] = {
            "picture_content": (_ContentRecord, self._content),
            "post_pictures": (_PostPicturesRecord, self._post_pictures),
            "avatar": (_AvatarRecord, self._avatar),
        }

    async def apply(self, kind: str, records: Sequence[Any]) -> list[SyncResult]:
        """Import records one after the other, or rows in one transaction."""
        if kind in self._tables.kinds:
            return await self._tables.apply(kind, records)
        shape, handler = self._handlers[kind]
        return [await apply_one(index, record, shape, handler) for index, record in enumerate(records)]

    async def _content(self, record: _ContentRecord) -> Status:
        files = [(ImageFile(file.variant, file.format, len(file.data)), file.data) for file in record.files]
        image = ProcessedImage(record.width, record.height, record.blurhash, files)
        if content_digest(image) != record.digest:
            raise Invalid("The files do not match it.", field="digest")
        written = await self._contents.write(image)
        if written.path is None:
            return "unchanged"
        async with self._sql.begin() as tx:
            inserted = await self._contents.insert(tx, written)
        if not inserted:
            await self._contents.discard(written)
        return "created"

    async def _post_pictures(self, record: _PostPicturesRecord) -> Status:
        key = k.POST(record.post_id)
        author, before, media_url = await self._valkey.call("HMGET", key, "user_id", "media", "media_url")
        if author is None:
            raise NotFound("No post has this id.", id=record.post_id)
        after = encode_pictures(record.media)
        if before == after:
            return "unchanged"
        if before is not None:
            raise Invalid("The post has other pictures.", field="media")
        address = self._claims.address(record.media[0].id, "large") if record.is_address else media_url or ""
        await self._functions.run("social_replace_pictures", [key], "", after, address)
        return "created"

    async def _avatar(self, record: _AvatarRecord) -> Status:
        address = self._claims.address(record.picture_id, "small")
        if await self._valkey.call("HGET", k.USER(record.username), "avatar") == address:
            return "unchanged"
        await self._users.update_profile(Actor(record.username, "user"), record.username, Profile(avatar=address))
        return "created"

    def snapshot(self) -> AbstractAsyncContextManager[None]:
        return self._tables.snapshot()

    def export(self, kind: str) -> AsyncIterator[Record]:
        """Yield contents by digest, rows by primary key, posts and avatars by username."""
        if kind in self._tables.kinds:
            return self._tables.export(kind)
        exports = {"picture_content": self._export_contents, "post_pictures": self._posts, "avatar": self._avatars}
        return exports[kind]()

    async def _export_contents(self) -> AsyncIterator[Record]:
        order = collate(CONTENTS.c.digest, "C") if self._sql.dialect == "postgresql" else CONTENTS.c.digest
        for row in await self._sql.fetch_all(select(CONTENTS).order_by(order)):
            files = []
            try:
                for file in decode_files(row.files):
                    data = b"".join([part async for part in self._store.read(file_path(row.path, file), 0, file.bytes)])
                    files.append({"variant": file.variant, "format": file.format, "data": data})
            except MissingFile:  # deleted meanwhile
                continue
            shown = {name: getattr(row, name) for name in ("digest", "width", "height", "blurhash")}
            yield {**shown, "files": files}

    async def _posts(self) -> AsyncIterator[Record]:
        async for id, post in self._social.post_hashes():
            media = decode_stored(post.get("media"))
            if media:
                is_address = own_picture(post.get("media_url", ""), self._claims) == media[0].id
                yield {"post_id": id, "media": [msgspec.to_builtins(each) for each in media], "is_address": is_address}

    async def _avatars(self) -> AsyncIterator[Record]:
        for names in chunks(await self._social.names(), PAGE):
            found = await self._valkey.batch([("HGET", k.USER(name), "avatar") for name in names])
            for name, avatar in zip(names, found, strict=True):
                picture = own_picture(avatar or "", self._claims)
                if picture is not None:
                    yield {"username": name, "picture_id": picture}
