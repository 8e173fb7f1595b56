"""Reads the body of a request as its route takes it: bytes, or a form with files."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlencode

from plaza.core.errors import BadRequest, Invalid, TooLarge
from plaza.core.http.body_reader import read_body
from plaza.core.http.bound_route import BoundRoute
from plaza.core.http.multipart import is_multipart, read_form
from plaza.core.http.problem_details import UnsupportedMediaType
from plaza.core.http.request import Request


def sends_files(request: Request, bound: BoundRoute) -> bool:
    """Whether a request's body is a form whose files the route takes."""
    return bound.takes_form or (bound.route.takes_files and is_multipart(request.headers))


async def read_request_body(request: Request, bound: BoundRoute, directory: Path | None) -> None:
    """Set the body of a request, and its form if it has files.

    The files are temporary files in `directory`; without one they are skipped.

    The text fields of a page's form with files become the body, as if the form had been sent without files. For other
    forms it is a digest of the contents, by which `Idempotency-Key` recognises the same request.
    """
    try:
        if not sends_files(request, bound):
            request.body = await read_body(request.exchange, bound.body_limit)
            return
        request.form = form = await read_form(request.exchange, bound.body_limit, directory)
        request.body = form.digest if bound.takes_form else urlencode(form.fields).encode()
    except (BadRequest, Invalid, TooLarge, UnsupportedMediaType):
        request.is_body_refused = True
        raise
