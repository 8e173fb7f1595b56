"""The sign-in page, and who comes to it: also those whose session ended over a form, with what they wrote in it."""

from __future__ import annotations

from typing import Any, Final

from plaza.core.errors import PlazaError
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.web.drafts import Draft, draft_of
from plaza.web.problem_pages import wants_page
from plaza.web.security import HOME
from plaza.web.site import Site
from plaza.web.visitors import Visitor

# What proxies add. One that does not pass the `Host` on asks for this machine by its own name, whoever asked the proxy.
_ADDED_BY_PROXIES: Final = frozenset(
    {"forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"}
)


async def sign_in_page(
    request: Request, site: Site, next: str, *, status: int = 200, draft: Draft | None = None, **said: Any
) -> Response[str]:
    """Where people sign in; with the demo on, also its accounts. It carries a draft along."""
    who = await site.visitors.at_the_door(request)
    given: dict[str, Any] = {"username": "", "problem": "", "carried": draft.carried() if draft else (), **said}
    accounts = await site.demo.accounts(host_of(request))
    return site.page(request, who, "sign-in.html", status=status, here=next, to=next, accounts=accounts, **given)


def let_in(request: Request, site: Site, who: Visitor, next: str, draft: Draft | None) -> Response[str]:
    """On to where somebody meant to be, or first to what they wrote."""
    if draft is None:
        return Response(status=303, headers=[*who.cookie, ("location", next)])
    return _draft_page(request, site, who, draft, here=next)


async def turned_away(request: Request, site: Site, error: PlazaError) -> Response[str]:
    """Whoever sent a form and is not, or no longer, signed in as when it was made. What they wrote is not lost."""
    draft = draft_of(request) if wants_page(request) else None
    if draft is None:
        raise error
    next = site.next(request.body, HOME)
    who = await site.visitors.of(request)
    if who.actor is None:
        said = "You are signed out by now. Sign in, and what you wrote is here again."
        return await sign_in_page(request, site, next, status=403, draft=draft, problem=said)
    return _draft_page(request, site, who, draft, status=403, here=next)


def _draft_page(request: Request, site: Site, who: Visitor, draft: Draft, **said: Any) -> Response[str]:
    return site.page(request, who, "draft-page.html", path=draft.path, fields=draft.shown(site.mark(who)), **said)


def host_of(request: Request) -> str:
    """The host that a visitor asked for; none if it was a proxy that asked, for we cannot know what it was asked."""
    return "" if _ADDED_BY_PROXIES & request.headers.keys() else request.headers.get("host", "")
