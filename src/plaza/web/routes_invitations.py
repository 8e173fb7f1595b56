"""Invitations to challenges: inviting, accepting, declining and withdrawing."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from plaza.challenges.invitations import ChallengeInvitations
from plaza.challenges.model import AlreadyJoined, ChallengeId, InvitedName, NotInvited
from plaza.challenges.service import Challenges
from plaza.core.errors import Invalid, NotFound
from plaza.core.http.access import USER
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.paging import Page
from plaza.web import forms
from plaza.web.page_responses import PageResponses
from plaza.web.page_routes import PageRoutes
from plaza.web.rendering import tabs
from plaza.web.routes_challenges import TABS
from plaza.web.text_html import next_page_link

page = PageRoutes()


@page.get("/challenges/invitations", access=USER)
async def own_invitations(
    request: Request, site: PageResponses, invitations: ChallengeInvitations, cursor: str | None = None
) -> Response[str]:
    """List your invitations to challenges."""
    visitor = await site.visitors.from_request(request)
    found = await invitations.page(visitor.require_user(), Page(cursor=cursor))
    more = next_page_link("/app/challenges/invitations", found.pagination)
    context: dict[str, Any] = {"invitations": found.invitations, "more": more, "challenge": None, "problem": ""}
    context["tabs"] = tabs("Challenges", TABS, "Invitations")
    return site.page(request, visitor, "challenge-invitations.html", section="Challenges", **context)


@page.get("/challenges/{id}/invitations", access=USER)
async def challenge_invitations(
    request: Request,
    site: PageResponses,
    id: ChallengeId,
    service: Challenges,
    invitations: ChallengeInvitations,
    cursor: str | None = None,
) -> Response[str]:
    """List the invitations to a challenge (its creator or an admin), with a form to invite a user."""
    visitor = await site.visitors.from_request(request)
    found = await invitations.page_of_challenge(visitor.require_user(), id, Page(cursor=cursor))
    more = next_page_link(f"/app/challenges/{id}/invitations", found.pagination)
    context: dict[str, Any] = {"invitations": found.invitations, "more": more, "problem": "", "tabs": ""}
    context["challenge"] = await service.read(visitor.actor, id)
    return site.page(request, visitor, "challenge-invitations.html", section="Challenges", **context)


@page.post("/challenges/{id}/invitations", access=USER)
async def change_invitation(
    request: Request,
    body: bytes,
    site: PageResponses,
    id: ChallengeId,
    service: Challenges,
    invitations: ChallengeInvitations,
) -> Response[str]:
    """Add or remove an invitation to a challenge."""
    visitor = await site.visitors.from_request(request)
    actor, fields = visitor.require_user(), forms.parse_form(body)
    name = fields.get("username", "").strip().removeprefix("@")
    path = "/app/challenges/invitations" if name == actor.name else f"/app/challenges/{id}/invitations"
    try:
        forms.convert_fields({"username": name}, dict[str, InvitedName])
        if fields.get("on") == "0":
            with suppress(NotInvited):  # ended by an earlier click
                await invitations.end(actor, id, name)
        else:
            await invitations.invite(actor, id, name)
    except (AlreadyJoined, Invalid, NotFound) as error:
        found = await invitations.page_of_challenge(actor, id, Page())
        context: dict[str, Any] = {"invitations": found.invitations, "more": "", "tabs": "", "problem": error.detail}
        context["username"] = fields.get("username", "")
        context["challenge"] = await service.read(actor, id)
        return site.page(
            request, visitor, "challenge-invitations.html", section="Challenges", status=error.status, **context
        )
    return site.form_response(request, visitor, b"", path)
