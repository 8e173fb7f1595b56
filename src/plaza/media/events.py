"""The events of media. They are added to the transaction that writes the rows."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from msgspec import Meta

from plaza.core.events import EventData

STREAM: Final = "media"


class MediaUploaded(EventData):
    """A user uploaded a picture. Until something shows it, only that user and admins can see it."""

    type: ClassVar[str] = "media.uploaded"
    subject: ClassVar[str] = "picture"
    picture: Annotated[str, Meta(description="Id of the picture.")]
    username: Annotated[str, Meta(description="Its owner.")]


EVENTS = (MediaUploaded,)
