"""The sign-in page, also for users whose session ended while they filled in a form: the page carries their text."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from plaza.core.errors import PlazaError
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.sessions.cookies import set_device_cookie
from plaza.web.drafts import Draft, draft_from_request
from plaza.web.page_responses import PageResponses
from plaza.web.problem_pages import wants_page
from plaza.web.security import HOME
from plaza.web.visitors import Visitor

# Headers that proxies add. A proxy that does not pass on the `Host` sends its own, so the visitor's host is unknown.
_PROXY_HEADERS: Final = frozenset(
    {"forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"}
)


async def sign_in_page(
    request: Request,
    site: PageResponses,
    next_path: str,
    *,
    status: int = 200,
    draft: Draft | None = None,
    **context: Any,
) -> Response[str]:
    """Return the sign-in page, with the demo's accounts if the demo is on. It carries a draft in hidden fields."""
    visitor = await site.visitors.for_sign_in(request)
    accounts = await site.demo.accounts(visited_host(request))
    values: dict[str, Any] = {
        "username": "",
        "problem": "",
        "needs_code": False,
        "methods": site.sign_in_methods,
        "hidden_fields": draft.hidden_fields() if draft else (),
        "accounts": accounts,
        "pictures": await site.visitors.avatars.addresses(account.username for account in accounts),
        **context,
    }
    return site.page(
        request, visitor, "sign-in.html", status=status, return_path=next_path, next_path=next_path, **values
    )


def signed_in_response(
    request: Request, site: PageResponses, visitor: Visitor, next_path: str, draft: Draft | None, device: str = ""
) -> Response[str]:
    """Redirect a user who has just signed in, or show the draft that the sign-in form carried.

    `device` is the cookie by which the browser is known from now on.
    """
    if device:
        visitor = replace(visitor, cookie=(*visitor.cookie, set_device_cookie(request, device)))
    if draft is None:
        return Response(status=303, headers=[*visitor.cookie, ("location", next_path)])
    return _draft_page(request, site, visitor, draft, return_path=next_path)


async def refused_form_response(request: Request, site: PageResponses, error: PlazaError) -> Response[str]:
    """Respond to a form of a visitor who is signed out, or signed in to another session, without losing the text."""
    draft = draft_from_request(request) if wants_page(request) else None
    if draft is None:
        raise error
    next_path = site.next_path(request.body, HOME)
    visitor = await site.visitors.from_request(request)
    if visitor.actor is None:
        problem = "You have been signed out. Sign in to continue with your text."
        return await sign_in_page(request, site, next_path, status=403, draft=draft, problem=problem)
    return _draft_page(request, site, visitor, draft, status=403, return_path=next_path)


def _draft_page(request: Request, site: PageResponses, visitor: Visitor, draft: Draft, **options: Any) -> Response[str]:
    fields = draft.form_fields(site.csrf_token(visitor))
    return site.page(request, visitor, "draft-page.html", path=draft.path, fields=fields, **options)


def visited_host(request: Request) -> str:
    """The host that the visitor requested; empty behind a proxy, where it is unknown."""
    return "" if _PROXY_HEADERS & request.headers.keys() else request.headers.get("host", "")
