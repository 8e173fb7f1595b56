"""The pictures of posts: they are uploaded first, and a post stores what is needed to show them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from plaza.core.auth import Actor
from plaza.core.errors import Invalid
from plaza.core.functions import Functions
from plaza.core.pictures import (
    POST,
    Pictures,
    PictureUse,
    StoredPicture,
    UseState,
    decode_stored,
    encode_pictures,
    picture_in_address,
)
from plaza.social import keys as k
from plaza.social.model import AttachedPicture, NewPost


class PostPictures:
    """Attaches pictures to posts, and says which posts show a picture (`PictureHost`)."""

    def __init__(self, functions: Functions, pictures: Pictures | None) -> None:
        self._functions = functions
        self._valkey = functions.valkey
        self._pictures = pictures

    async def claim(self, actor: Actor, post: str, new: NewPost) -> tuple[list[StoredPicture], str | None]:
        """Return the pictures of a new post and its `media_url`: what the caller gave, or the first picture's address.

        One transaction, and only if there are pictures.
        """
        attached = [each if isinstance(each, AttachedPicture) else AttachedPicture(each) for each in new.media]
        ids = [each.id for each in attached]
        if not ids:
            return [], new.media_url or None
        if self._pictures is None:
            raise Invalid("Pictures are not enabled here.", field="media")
        if len(set(ids)) < len(ids):
            raise Invalid("The same picture is listed twice.", field="media")
        found = await self._pictures.claim(actor, ids, PictureUse(POST, post))
        pictures = [
            picture if each.alt is None else msgspec.structs.replace(picture, alt=each.alt.strip())
            for picture, each in zip(found, attached, strict=True)
        ]
        return pictures, new.media_url or self._pictures.address(ids[0], "large")

    async def without_deleted(self, post: str, pictures: Sequence[StoredPicture]) -> list[StoredPicture]:
        """Remove from a new post what was deleted while it was written, and return the others. One short read."""
        if not pictures or self._pictures is None:
            return []
        deleted = await self._pictures.deleted([picture.id for picture in pictures])
        for id in deleted:
            await self.remove(post, id)
        return [picture for picture in pictures if picture.id not in deleted]

    async def add(self, actor: Actor, post: str, ids: Sequence[str]) -> bool:
        """Give the caller's post pictures, if it has none yet and exists. One transaction and one round trip."""
        assert self._pictures is not None, "pictures were uploaded"
        pictures = await self._pictures.claim(actor, ids, PictureUse(POST, post))
        args = "", encode_pictures(pictures), self._pictures.address(ids[0], "large")
        return bool(await self._functions.run("social_replace_pictures", [k.POST(post)], *args))

    async def states(self, uses: Sequence[tuple[str, str]]) -> list[UseState]:
        """Return whether each post shows the picture: visibly, or hidden because it is banned. One round trip."""
        rows = await self._valkey.batch([("HMGET", k.POST(post), "media", "banned") for post, _ in uses])
        return [_state(media, banned, picture) for (media, banned), (_, picture) in zip(rows, uses, strict=True)]

    async def remove(self, id: str, picture: str) -> None:
        """Remove a picture from a post. `media_url` follows if it is the picture's address. Two round trips."""
        while True:
            before, media_url = await self._valkey.call("HMGET", k.POST(id), "media", "media_url")
            if _state(before, None, picture) == "gone":
                return
            left = [each for each in decode_stored(before) if each.id != picture]
            if picture_in_address(media_url) == picture and self._pictures is not None:
                media_url = self._pictures.address(left[0].id, "large") if left else ""
            args = before, encode_pictures(left), media_url or ""
            if await self._functions.run("social_replace_pictures", [k.POST(id)], *args):
                return


def _state(media: str | None, banned: str | None, picture: str) -> UseState:
    # An id is a UUID, so it is nowhere else in the text. This is asked for every picture that is sent.
    if media is None or f'"{picture}"' not in media:
        return "gone"
    return "visible" if banned is None else "hidden"
