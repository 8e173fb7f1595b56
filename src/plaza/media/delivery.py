"""Sends pictures: finds the file for a request, and decides whether the caller may see it.

What is known of a picture never changes, so it is cached in the process; what shows the picture is asked at every
request, in one round trip. If the cached things do not show it, the others are read again: then a picture is found
however it was used since.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from msgspec import Struct, field
from sqlalchemy import bindparam, select

from plaza.core.auth import Actor
from plaza.core.pictures import PictureUse
from plaza.core.sql import Sql
from plaza.media.contents import decode_files, file_path
from plaza.media.pictures import PictureVisibility, no_picture
from plaza.media.processor import ImageFile
from plaza.media.tables import CONTENTS, PICTURES, USES

# About 1 kB each.
MAX_CACHED: Final = 10_000

_BY_ID = (
    select(PICTURES.c.owner, CONTENTS.c.digest, CONTENTS.c.path, CONTENTS.c.files, USES.c.kind, USES.c.thing)
    .select_from(PICTURES.join(CONTENTS).outerjoin(USES))
    .where(PICTURES.c.id == bindparam("id"))
)


class KnownPicture(Struct):
    """A picture's owner and files, and the things that may show it, the one that did last first."""

    owner: str
    digest: str
    path: str
    files: dict[str, list[ImageFile]]  # by variant, the preferred format first
    uses: list[PictureUse] = field(default_factory=list)


class PictureFile(Struct, frozen=True):
    """A file to send. `is_public`: everyone may see it, and may keep it."""

    path: str
    format: str
    bytes: int
    etag: str
    is_public: bool


class PictureDelivery:
    """Finds the files of visible pictures."""

    def __init__(self, sql: Sql, visibility: PictureVisibility) -> None:
        self._sql = sql
        self._visibility = visibility
        self._known: OrderedDict[str, KnownPicture] = OrderedDict()

    async def find(self, viewer: Actor | None, id: str, variant: str, accept: str | None) -> PictureFile:
        """Return the file that a caller gets. Raises `NotFound` if they may not see the picture.

        Everyone sees a picture that something visible shows. Its owner also sees it before it is used, an admin always.
        One round trip.
        """
        known = self._known.get(id)
        is_public = known is not None and await self._is_shown(id, known)
        if not is_public:
            known = await self._load(id)
            states = await self._visibility.states([(use, id) for use in known.uses])
            is_public = self._remember_shown(id, known, states)
            is_owner = viewer is not None and viewer.name == known.owner and "hidden" not in states
            if not is_public and not is_owner and not (viewer is not None and viewer.is_admin):
                raise no_picture(id)
        assert known is not None
        file = _preferred(known.files[variant], accept)
        path, etag = file_path(known.path, file), f'"{known.digest[:24]}-{variant}-{file.format}"'
        return PictureFile(path, file.format, file.bytes, etag, is_public)

    async def _is_shown(self, id: str, known: KnownPicture) -> bool:
        """Whether the thing that showed the picture last still does."""
        return await self._visibility.states([(known.uses[0], id)]) == ["visible"]

    def _remember_shown(self, id: str, known: KnownPicture, states: Sequence[str]) -> bool:
        """Cache a picture that something shows; return whether anything does."""
        if "visible" not in states:
            self._known.pop(id, None)
            return False
        known.uses.insert(0, known.uses.pop(states.index("visible")))
        self._known[id] = known
        while len(self._known) > MAX_CACHED:
            self._known.popitem(last=False)
        return True

    async def _load(self, id: str) -> KnownPicture:
        rows = await self._sql.fetch_all(_BY_ID, id=id)
        if not rows:
            self._known.pop(id, None)
            raise no_picture(id)
        first = rows[0]
        by_variant: dict[str, list[ImageFile]] = {}
        for file in decode_files(first.files):
            by_variant.setdefault(file.variant, []).append(file)
        uses = [PictureUse(row.kind, row.thing) for row in rows if row.kind is not None]
        return KnownPicture(first.owner, first.digest, first.path, by_variant, uses)


def _preferred(files: list[ImageFile], accept: str | None) -> ImageFile:
    """Return the smallest file, or a JPEG if the client prefers it."""
    if accept is None or len(files) == 1 or _quality(accept, "image/webp") >= _quality(accept, "image/jpeg"):
        return files[0]
    return next(file for file in files if file.format == "jpeg")


def _quality(accept: str, media_type: str) -> float:
    """Return how much a client wants a type, by RFC 9110, 12.5.1: 0 to 1."""
    best, best_rank = 0.0, -1
    ranks = {media_type: 2, f"{media_type.partition('/')[0]}/*": 1, "*/*": 0}
    for part in accept.lower().split(",")[:50]:
        name, *parameters = (piece.strip() for piece in part.split(";"))
        rank = ranks.get(name, -1)
        if rank > best_rank:
            best, best_rank = _weight(parameters), rank
    return best


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return float(parameter[2:])
            except ValueError:
                return 0.0
    return 1.0
