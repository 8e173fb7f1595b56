"""Editing and deleting challenges and their posts."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from plaza.challenges.challenge_deletion import ChallengeDeletion
from plaza.challenges.model import ChallengeEdit, ChallengeId, ChallengePostEdit, PostId, UnitInUse
from plaza.challenges.posts import ChallengePosts
from plaza.challenges.service import Challenges
from plaza.core.errors import Forbidden, Invalid, NotFound
from plaza.core.http.access import USER
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.web import forms
from plaza.web.page_responses import PageResponses
from plaza.web.page_routes import PageRoutes

page = PageRoutes()


@page.get("/challenges/{id}/edit", access=USER)
async def edit_page(request: Request, site: PageResponses, id: ChallengeId, service: Challenges) -> Response[str]:
    """Show the form to edit or delete a challenge."""
    visitor = await site.visitors.from_request(request)
    actor, found = visitor.require_user(), await service.read(visitor.actor, id)
    if not actor.is_admin and actor.name != found.creator:
        raise Forbidden("Only the creator can edit a challenge.")
    context: dict[str, Any] = {"challenge": found, "title": found.title, "duration": found.duration}
    context |= {"unit": found.unit or "", "problem": "", "field": ""}
    return site.page(request, visitor, "challenge-edit.html", section="Challenges", **context)


@page.post("/challenges/{id}/edit", access=USER)
async def edit(
    request: Request, body: bytes, site: PageResponses, id: ChallengeId, service: Challenges
) -> Response[str]:
    """Edit a challenge (its creator)."""
    visitor = await site.visitors.from_request(request)
    fields = forms.parse_form(body)
    try:
        changes = forms.read_form(body, ChallengeEdit, unit=fields.get("unit") or None)
        await service.edit(visitor.require_user(), id, changes)
    except (Invalid, UnitInUse) as error:
        context: dict[str, Any] = {name: fields.get(name, "") for name in ("title", "duration", "unit")}
        context |= {"challenge": await service.read(visitor.actor, id), "problem": error.detail}
        context["field"] = error.extra.get("field", "unit")
        return site.page(request, visitor, "challenge-edit.html", section="Challenges", status=error.status, **context)
    return site.form_response(request, visitor, b"", f"/app/challenges/{id}")


@page.post("/challenges/{id}/delete", access=USER, logged=True)
async def delete(
    request: Request, body: bytes, site: PageResponses, id: ChallengeId, deletion: ChallengeDeletion
) -> Response[str]:
    """Delete a challenge (its creator or an admin)."""
    visitor = await site.visitors.from_request(request)
    with suppress(NotFound):  # deleted by an earlier click
        await deletion.delete(visitor.require_user(), id)
    return site.form_response(request, visitor, b"", "/app/challenges")


@page.get("/challenges/posts/{id}/edit", access=USER)
async def edit_post_page(request: Request, site: PageResponses, id: PostId, posts: ChallengePosts) -> Response[str]:
    """Show the form to edit or delete a challenge post."""
    visitor = await site.visitors.from_request(request)
    found = await posts.read(visitor.require_user(), id)
    if found.username != visitor.name:
        raise Forbidden("Only the author can edit a post.")
    context: dict[str, Any] = {"post": found, "text": found.text, "problem": ""}
    return site.page(request, visitor, "challenge-post-edit.html", section="Challenges", **context)


@page.post("/challenges/posts/{id}/edit", access=USER)
async def edit_post(
    request: Request, body: bytes, site: PageResponses, id: PostId, posts: ChallengePosts
) -> Response[str]:
    """Edit a challenge post (its author)."""
    visitor = await site.visitors.from_request(request)
    try:
        edited = await posts.edit(visitor.require_user(), id, forms.read_form(body, ChallengePostEdit))
    except Invalid as error:
        text = forms.parse_form(body).get("text", "")
        values: dict[str, Any] = {"post": await posts.read(visitor.actor, id), "text": text, "problem": error.detail}
        return site.page(
            request, visitor, "challenge-post-edit.html", section="Challenges", status=error.status, **values
        )
    return site.form_response(request, visitor, b"", f"/app/challenges/{edited.challenge_id}#challenge-post-{id}")


@page.post("/challenges/posts/{id}/delete", access=USER, logged=True)
async def delete_post(
    request: Request, body: bytes, site: PageResponses, id: PostId, posts: ChallengePosts
) -> Response[str]:
    """Delete a challenge post (its author or an admin)."""
    visitor = await site.visitors.from_request(request)
    path = "/app/challenges"
    with suppress(NotFound):  # deleted by an earlier click
        path = f"/app/challenges/{(await posts.read(visitor.require_user(), id)).challenge_id}"
        await posts.delete(visitor.require_user(), id)
    return site.form_response(request, visitor, b"", path)
