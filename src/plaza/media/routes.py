"""HTTP routes of pictures."""

from __future__ import annotations

from plaza.core.auth import Actor
from plaza.core.http.access import AUTHENTICATED, PUBLIC, USER
from plaza.core.http.multipart import OVERHEAD_BYTES, Multipart
from plaza.core.http.problem_details import RangeNotSatisfiable, UnsupportedMediaType
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.http.routes import Routes
from plaza.core.pictures import Picture, PictureId
from plaza.media.model import BadImage, DailyUploadsUsed, DeletedPicture, QuotaUsed, UploadForm, UploadsOff, VariantName
from plaza.media.picture_responses import PictureResponses
from plaza.media.pictures import PictureDeletion
from plaza.media.uploads import Uploads

route = Routes("media", prefix="/media", about="Pictures: upload, delivery and deletion.")


@route.post(
    "",
    access=USER,
    status=201,
    idempotent=True,
    body_limit=lambda settings: settings.media_max_bytes + OVERHEAD_BYTES,
    raises=[BadImage, DailyUploadsUsed, QuotaUsed, UnsupportedMediaType, UploadsOff],
    example={"file": "(the file)", "alt": "A beach at noon"},
)
async def upload_picture(actor: Actor, body: Multipart[UploadForm], request: Request, uploads: Uploads) -> Picture:
    """Upload a picture: JPEG, PNG, WebP, AVIF or GIF, at most 10 MB and 40 megapixels.

    It is written again in three sizes, without metadata. Until something shows it, only its owner can see it; after a
    day without use it is deleted.
    """
    file = body.file
    stored = await uploads.create(actor, file.content, file.size, file.filename, body.fields.alt, request.operation)
    return stored.picture()


@route.get("/{id}/{variant}", access=PUBLIC, media_type="image/webp", raises=[RangeNotSatisfiable])
async def get_picture(
    actor: Actor | None, id: PictureId, variant: VariantName, request: Request, pictures: PictureResponses
) -> Response[bytes]:
    """Get a picture: `small` is at most 320, `medium` 960 and `large` 1,920 pixels wide."""
    return await pictures.respond(actor, id, variant, request)


@route.delete("/{id}", access=AUTHENTICATED)
async def delete_picture(actor: Actor, id: PictureId, deletion: PictureDeletion) -> DeletedPicture:
    """Delete a picture (its owner or an admin). What shows it stops showing it."""
    return await deletion.delete(actor, id)
