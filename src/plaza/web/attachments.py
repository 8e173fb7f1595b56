"""Pictures in the form of a post: those that the page's script has uploaded, and files that the form itself has.

The script uploads a picture when it is chosen, and the form then has a field `picture.<id>` with its description.
Without the script the browser sends the files with the form, and their descriptions as `alt1` to `alt4`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from plaza.core.auth import Actor
from plaza.core.errors import Invalid
from plaza.core.http.multipart import UploadedFile
from plaza.core.http.request import Request
from plaza.media.uploads import Uploads
from plaza.social.model import MAX_PICTURES
from plaza.web.forms import CSRF, FORM_ID, NEXT

PICTURE_PREFIX: Final = "picture."
_ALT_PREFIX: Final = "alt"


def text_fields(fields: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of a form that are not about pictures, without empty and hidden ones."""
    return {name: value for name, value in fields.items() if value and not _is_internal(name)}


def _is_internal(name: str) -> bool:
    is_alt = name.removeprefix(_ALT_PREFIX).isdigit() and name.startswith(_ALT_PREFIX)
    return name in (CSRF, NEXT, FORM_ID) or name.startswith(PICTURE_PREFIX) or is_alt


def chosen_files(request: Request) -> list[UploadedFile]:
    """Return the files of a form. A field without a file is sent as an empty one."""
    return [file for file in request.files if file.size or file.filename]


async def attach(
    request: Request, actor: Actor, fields: Mapping[str, str], uploads: Uploads, key: str
) -> list[dict[str, Any]]:
    """Return the pictures of a form for `NewPost.media`, after uploading its files."""
    pictures = [
        {"id": name.removeprefix(PICTURE_PREFIX), "alt": alt}
        for name, alt in fields.items()
        if name.startswith(PICTURE_PREFIX)
    ]
    files = chosen_files(request)
    if len(pictures) + len(files) > MAX_PICTURES:
        raise Invalid(f"A post has at most {MAX_PICTURES} pictures. Choose fewer.", field="media")
    for number, file in enumerate(files, 1):
        alt = fields.get(f"{_ALT_PREFIX}{number}", "")
        operation = hashlib.sha256(f"{key} {number}".encode()).hexdigest()[:32]
        stored = await uploads.create(actor, file.content, file.size, file.filename, alt, operation)
        pictures.append({"id": stored.id, "alt": alt})
        # If the form is refused, it is shown again: with the picture instead of the file.
        request.body += b"&" + urlencode({f"{PICTURE_PREFIX}{stored.id}": alt}).encode()
    return pictures
