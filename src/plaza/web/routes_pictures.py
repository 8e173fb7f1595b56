"""Pictures on pages: uploads of the scripts, pictures that only their owner or an admin may see, and the avatar."""

from __future__ import annotations

from typing import Any

from plaza.core.errors import Invalid
from plaza.core.http.access import PUBLIC, USER
from plaza.core.http.multipart import OVERHEAD_BYTES, UploadedFile
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.pictures import PictureId
from plaza.core.settings import Settings
from plaza.media.model import VariantName
from plaza.media.picture_responses import PictureResponses
from plaza.media.uploads import Uploads
from plaza.social.avatars import Avatars
from plaza.web.attachments import chosen_files
from plaza.web.page_responses import PageResponses
from plaza.web.page_routes import PageRoutes
from plaza.web.text_html import user_path

page = PageRoutes()


def _one_file(settings: Settings) -> int:
    return settings.media_max_bytes + OVERHEAD_BYTES


def _require_file(request: Request) -> UploadedFile:
    files = chosen_files(request)
    if len(files) != 1:
        raise Invalid("Choose a picture first.", field="file")
    return files[0]


@page.post("/media", access=USER, takes_files=True, body_limit=_one_file)
async def upload(request: Request, body: bytes, site: PageResponses, uploads: Uploads) -> Response[str]:
    """Upload a picture for a post that is being written."""
    visitor = await site.visitors.from_request(request)
    file, key = _require_file(request), site.idempotency_key(request, body)
    stored = await uploads.create(visitor.require_user(), file.content, file.size, file.filename, "", key)
    context: dict[str, Any] = {"picture": stored.picture()}
    return site.form_response(request, visitor, body, "/app", "attachment.html", **context)


@page.get("/media/{id}/{variant}", access=PUBLIC, media_type="image/webp")
async def picture(
    request: Request, site: PageResponses, id: PictureId, variant: VariantName, pictures: PictureResponses
) -> Response[bytes]:
    """Get a picture that only its owner or an admin may see."""
    visitor = await site.visitors.from_request(request)
    return await pictures.respond(visitor.actor, id, variant, request)


@page.post("/profile/avatar", access=USER, takes_files=True, body_limit=_one_file)
async def set_avatar(
    request: Request, body: bytes, site: PageResponses, uploads: Uploads, avatars: Avatars
) -> Response[str]:
    """Upload a picture and make it your avatar."""
    visitor = await site.visitors.from_request(request)
    actor, file, key = visitor.require_user(), _require_file(request), site.idempotency_key(request, body)
    stored = await uploads.create(actor, file.content, file.size, file.filename, "", key)
    await avatars.set(actor, stored.id)
    return site.form_response(request, visitor, b"", user_path(visitor.name))


@page.post("/profile/avatar/delete", access=USER)
async def delete_avatar(request: Request, body: bytes, site: PageResponses, avatars: Avatars) -> Response[str]:
    """Remove your avatar."""
    visitor = await site.visitors.from_request(request)
    await avatars.delete(visitor.require_user())
    return site.form_response(request, visitor, b"", "/app/profile")
