"""The types of media: requests, responses and errors."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from plaza.core.errors import NEVER_MISSING, Conflict, Invalid, TooFast, Unavailable
from plaza.core.pictures import AltText

VariantName = Annotated[Literal["small", "medium", "large"], NEVER_MISSING, Meta(examples=["small"])]


class BadImage(Invalid):
    title, code = "The picture is not accepted", "bad_image"


class UploadsOff(Unavailable):
    title, code = "This server takes no pictures", "uploads_off"


class DailyUploadsUsed(TooFast):
    title, code = "You have uploaded as much as is allowed in a day", "daily_uploads_used"


class QuotaUsed(Conflict):
    title, code = "Your pictures use all your space", "quota_used"


class UploadForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The text fields of an upload, beside `file`."""

    alt: AltText = ""


class DeletedPicture(msgspec.Struct, frozen=True):
    id: str
    deleted: bool
