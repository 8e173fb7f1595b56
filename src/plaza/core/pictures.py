"""Pictures as domains see them: the domain that stores them, and those whose things show them.

`media` stores pictures. A domain that shows them gets `Provided.pictures`, stores a `Picture` beside its own data
(`encode_pictures`), and offers a `PictureHost`, by which `media` asks whether a picture is still shown. So the source
data of the other domain decides who may see a picture and when it is deleted, and no count can be wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final, Literal, NamedTuple, Protocol

import msgspec
from msgspec import Meta

from plaza.core.async_engine import AsyncConnection
from plaza.core.auth import Actor
from plaza.core.picture_variants import VARIANT_WIDTHS, variant_size
from plaza.core.root_path import with_root
from plaza.core.validation_messages import described_pattern

MAX_ALT_CHARACTERS: Final = 1_000
_ALT: Final = described_pattern(
    "Must not contain control characters", r"^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]*$(?!\n)"
)
AltText = Annotated[
    str,
    Meta(
        max_length=MAX_ALT_CHARACTERS, pattern=_ALT, description="What the picture shows, for those who cannot see it."
    ),
]

UUID: Final = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
PictureId = Annotated[
    str,
    Meta(
        pattern=described_pattern("Must be a UUID in lower case", rf"^{UUID}$(?!\n)"),
        description="Id of an uploaded picture.",
        examples=["7d0c2f63-5c0a-4f0e-9d53-1b7a5c3f9e21"],
    ),
]

# The address of a picture, also with the host before it.
_ADDRESS: Final = re.compile(rf"(?:https?://[^/?#\s]+)?/(?:[^?#\s]*/)?media/({UUID})/(?:{'|'.join(VARIANT_WIDTHS)})")


class PictureVariant(msgspec.Struct, frozen=True):
    url: str
    width: int
    height: int


class Picture(msgspec.Struct, frozen=True):
    """A picture. `width` and `height` are those of the upload; `blurhash` is a blurred preview (https://blurha.sh)."""

    id: str
    width: int
    height: int
    blurhash: str
    alt: str
    variants: dict[str, PictureVariant]


class StoredPicture(msgspec.Struct, frozen=True):
    """What a thing stores of a picture that it shows. The rest follows from it."""

    id: PictureId
    width: Annotated[int, Meta(gt=0)]
    height: Annotated[int, Meta(gt=0)]
    blurhash: Annotated[str, Meta(max_length=100)] = ""
    alt: Annotated[str, Meta(max_length=MAX_ALT_CHARACTERS)] = ""

    def picture(self) -> Picture:
        """Return the picture with the addresses and sizes of its variants."""
        variants = {
            name: PictureVariant(with_root(picture_path(self.id, name)), *variant_size(self.width, self.height, name))
            for name in VARIANT_WIDTHS
        }
        return Picture(self.id, self.width, self.height, self.blurhash, self.alt, variants)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[StoredPicture]).decode


def encode_pictures(pictures: Sequence[StoredPicture]) -> str:
    """Return the pictures of a thing as text, for a field or a column."""
    return _encode(pictures).decode() if pictures else ""


def decode_stored(text: str | None) -> list[StoredPicture]:
    """Return the pictures in such a text; none if another service wrote something else."""
    if not text:
        return []
    try:
        return _decode(text)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return []


def decode_pictures(text: str | None) -> list[Picture]:
    """Return the same with the addresses and sizes of their variants."""
    return [stored.picture() for stored in decode_stored(text)]


def picture_path(id: str, variant: str) -> str:
    """Return the path of a picture's variant."""
    return f"/media/{id}/{variant}"


def picture_in_address(address: str | None) -> str | None:
    """Return the id of the picture that an address shows; None if it is the address of something else."""
    found = _ADDRESS.fullmatch(address or "")
    return found[1] if found else None


# The kinds of things that show pictures. The id of an avatar is a username.
POST, AVATAR, ITEM = "post", "avatar", "item"


class PictureUse(NamedTuple):
    """A thing that shows a picture: its kind and its id."""

    kind: str
    id: str


# `hidden`: the thing exists and may be shown again, such as a banned post. `gone`: it does not show the picture.
UseState = Literal["visible", "hidden", "gone"]


class PictureHost(Protocol):
    """A domain whose things show pictures, for one kind of thing."""

    async def states(self, uses: Sequence[tuple[str, str]]) -> list[UseState]:
        """Return the state of each thing and picture, by their ids, from the source data. One round trip."""

    async def remove(self, id: str, picture: str) -> None:
        """Stop showing a picture, because it is being deleted. It is called again if it was interrupted."""


class AvatarAddresses(Protocol):
    """The avatars of users, uploaded or from elsewhere."""

    async def addresses(self, names: Iterable[str]) -> Mapping[str, str]:
        """Return the addresses of users' avatars, empty for those without one. No round trip if cached, else one."""


class NoAvatars:
    """The avatars of users where no domain has users."""

    async def addresses(self, names: Iterable[str]) -> Mapping[str, str]:
        return dict.fromkeys(names, "")


class Pictures(Protocol):
    """The pictures that users have uploaded."""

    async def claim(self, actor: Actor, ids: Sequence[str], use: PictureUse) -> list[StoredPicture]:
        """Return pictures of the caller that a thing will show, and do not delete them while it is being written.

        Raises `Invalid` if one does not exist or is not theirs. One transaction.
        """

    async def deleted(self, ids: Sequence[str]) -> list[str]:
        """Return those of these pictures that no longer exist. One short read.

        A thing that is written after `claim` asks this afterwards: its picture may have been deleted meanwhile.
        """

    async def adopt(self, tx: AsyncConnection, actor: Actor, ids: Sequence[str]) -> list[StoredPicture]:
        """Make pictures Plaza's own, for a thing without an owner, in the caller's transaction and first in it.

        An admin gives their own pictures, the API key anyone's. Raises `Invalid` otherwise.
        """

    async def add_use(self, tx: AsyncConnection, ids: Sequence[str], use: PictureUse) -> None:
        """Record that a thing shows pictures, in the transaction that writes the thing."""

    def address(self, id: str, variant: str) -> str:
        """Return the address of a picture for other services: absolute if `PLAZA_PUBLIC_URL` is set."""
