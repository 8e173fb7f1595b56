"""Errors as HTML pages, for browsers. Our scripts get problem documents, as API clients do."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import parse_qs, quote

from plaza.core.errors import BadRequest, Invalid, MethodNotAllowed, NotFound, PlazaError, Unavailable
from plaza.core.http.access import AdminMfaRequired
from plaza.core.http.problem_details import error_headers, problem
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.web.drafts import draft_from_request
from plaza.web.forms import NEXT, parse_form
from plaza.web.rendering import html_response, render, site_header
from plaza.web.security import HOME, local_path
from plaza.web.visitors import ANONYMOUS, Visitor

SIGN_IN: Final = "/app/sign-in"
# Where users set up their second factor.
SECURITY: Final = "/app/security"

_ADVICE: Final = {
    403: "You do not have permission to do this.",
    404: "It may have been deleted, or the address may be wrong.",
    410: "The list has changed since you opened it. Start again at its first page.",
    500: "This is an error on our side. It has been logged.",
}
# Errors that may be gone in a moment.
_TEMPORARY: Final = frozenset({429, 500, 503})


def wants_page(request: Request) -> bool:
    """Whether a browser shows the response; false for our scripts."""
    return "x-fragment" not in request.headers and "text/html" in request.headers.get("accept", "text/html")


def problem_page(error: PlazaError, request: Request) -> Response[Any]:
    """Return an error as a page. A visitor who must sign in is redirected to the sign-in page and then comes back."""
    if isinstance(error, Unavailable):
        again = "Plaza is busy or restarting. Try again in a few seconds."
        error = BrieflyUnavailable(again, retry_after=error.retry_after)
    if not wants_page(request):
        return problem(error, request.request_id)
    if error.status == 401:
        return Response(status=303, headers=[("location", sign_in_path(_intended_path(request)))])
    if isinstance(error, Invalid | MethodNotAllowed) and request.method in ("GET", "HEAD"):
        error = _explain_address(error, request)
    visitor: Visitor = request.visitor or ANONYMOUS
    body = render(
        "problem.html",
        **_frame(visitor, is_known=request.visitor is not None),
        error=error,
        advice=_ADVICE.get(error.status, ""),
        request_id=request.request_id,
        opens_by_itself=error.status == 503 and request.method == "GET",
        **_ways_to_continue(error, request),
    )
    headers = [pair for pair in error_headers(error) if pair[0] != "www-authenticate"]
    return html_response(body, *headers, status=error.status, is_personal=visitor.actor is not None)


def _frame(visitor: Visitor, *, is_known: bool) -> dict[str, Any]:
    """The frame of the page, for a visitor who is already identified: to do that now could fail for the same reason.

    Who is not identified may be signed in, and gets no links to sign in.
    """
    sign_in_path = HOME if is_known and visitor.actor is None else ""
    account = (visitor.name, visitor.has_admin_role, sign_in_path, visitor.avatar, visitor.unread, visitor.cart)
    return {"site_header": site_header("", *account), "return_path": HOME, "csrf": visitor.csrf, "sidebar": ""}


class BrieflyUnavailable(Unavailable):
    """What visitors read of a 503. The log says which service is not available."""

    title = "Plaza is briefly unavailable"


class InvalidAddress(Invalid):
    """A parameter of a page's address is not valid. The page exists without it."""

    title = "This address is not valid"


def _explain_address(error: PlazaError, request: Request) -> PlazaError:
    """Say what is wrong with an address: a parameter of its query, else the path, which leads nowhere."""
    field = str(error.extra.get("field", ""))
    if field and field in parse_qs(request.query_string.decode("latin-1"), keep_blank_values=True):
        return InvalidAddress(f"The value of “{field}” is not one that this page knows. Open the page without it.")
    return NotFound("There is no page at this address.")


def _ways_to_continue(error: PlazaError, request: Request) -> dict[str, Any]:
    """Links to the form's page or, after a temporary error, to the same page; and the form with the user's text."""
    draft = draft_from_request(request)
    is_form = request.method not in ("GET", "HEAD")
    back = _intended_path(request) if is_form else HOME
    can_retry = not is_form and error.status in _TEMPORARY
    return {
        "retry_path": local_path(path_and_query(request), "") if can_retry else "",
        "whole_path": local_path(request.path, "") if isinstance(error, InvalidAddress) else "",
        "back_path": back if back != HOME else _list_path(request),
        "set_up_path": SECURITY if isinstance(error, AdminMfaRequired) else "",
        "path": "" if draft is None else draft.path,
        "fields": () if draft is None else draft.form_fields(),
    }


def _list_path(request: Request) -> str:
    """The list that leads to a page of operators, such as `/app/operator/users`; for other pages `/app`."""
    parts = request.path.split("/")
    is_entry = parts[:3] == ["", "app", "operator"] and len(parts) > 4
    visitor: Visitor = request.visitor or ANONYMOUS
    return local_path("/".join(parts[:4])) if is_entry and visitor.is_admin else HOME


def sign_in_path(next_path: str) -> str:
    return f"{SIGN_IN}?next={quote(next_path, safe='')}"


def path_and_query(request: Request) -> str:
    """The requested path with its query."""
    query = request.query_string.decode("latin-1")
    return f"{request.path}?{query}" if query else request.path


def _intended_path(request: Request) -> str:
    """The page that the visitor wanted: the requested one, or the page of the form that was sent."""
    if request.method in ("GET", "HEAD"):
        return local_path(path_and_query(request))
    try:
        return local_path(parse_form(request.body).get(NEXT))
    except BadRequest:
        return HOME
