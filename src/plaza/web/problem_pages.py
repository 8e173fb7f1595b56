"""Errors as pages, for browsers. Scripts of ours get the same problem documents as everybody else."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from plaza.core.errors import BadRequest, Invalid, MethodNotAllowed, NotFound, PlazaError
from plaza.core.http.problem_details import headers_of, problem
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.web.drafts import draft_of
from plaza.web.forms import NEXT, fields_of
from plaza.web.rendering import chrome, page, render
from plaza.web.security import HOME, local

SIGN_IN: Final = "/app/sign-in"

_ADVICE: Final = {
    403: "This is not for you, or not any more.",
    404: "It may have been deleted, or the address is not quite right.",
    410: "This list has moved on since. Begin again at its first page.",
    429: "Wait a moment and try again.",
    500: "It is our fault, and it is in our log.",
    503: "Something we stand on is away. It usually takes a few seconds.",
}
# What may be otherwise in a moment.
_PASSING: Final = frozenset({429, 500, 503})


def wants_page(request: Request) -> bool:
    """Whether a person looks at the answer, and not a script of ours."""
    return "x-fragment" not in request.headers and "text/html" in request.headers.get("accept", "text/html")


def problem_page(error: PlazaError, request: Request) -> Response[Any]:
    """What went wrong, in the design of all pages. Who is not signed in is sent there, and comes back."""
    if not wants_page(request):
        return problem(error, request.request_id)
    if error.status == 401:
        return Response(status=303, headers=[("location", sign_in_path(_wanted(request)))])
    if isinstance(error, Invalid | MethodNotAllowed) and request.method in ("GET", "HEAD"):
        error = NotFound("There is nothing at this address.")  # mistyped; to people a number out of range is no field
    # Errors are told without asking who it is.
    nobody = {"chrome": chrome("", "", False, ""), "here": HOME, "csrf": "", "notices": ""}
    advice = _ADVICE.get(error.status, "")
    body = render(
        "problem.html", **nobody, error=error, advice=advice, request_id=request.request_id, **_again(error, request)
    )
    headers = [pair for pair in headers_of(error) if pair[0] != "www-authenticate"]
    return page(body, *headers, status=error.status)


def _again(error: PlazaError, request: Request) -> dict[str, Any]:
    """How to go on: back to the form's page, or ask again for what passes by itself; with all that was written."""
    draft = draft_of(request)
    is_form = request.method not in ("GET", "HEAD")
    passes = not is_form and error.status in _PASSING
    return {
        "again": local(address(request), "") if passes else "",
        "back": _wanted(request) if is_form else HOME,
        "path": "" if draft is None else draft.path,
        "fields": () if draft is None else draft.shown(),
    }


def sign_in_path(wanted: str) -> str:
    return f"{SIGN_IN}?next={quote(wanted, safe='')}"


def address(request: Request) -> str:
    """The address of the page that is asked for."""
    query = request.scope["query_string"].decode("latin-1")
    return f"{request.path}?{query}" if query else request.path


def _wanted(request: Request) -> str:
    """Where someone meant to be: on this page, or on the one whose form was sent."""
    if request.method in ("GET", "HEAD"):
        return local(address(request))
    try:
        return local(fields_of(request.body).get(NEXT))
    except BadRequest:
        return HOME
