"""A post in a challenge with its comments: write, reply, edit, delete."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from markupsafe import Markup

from plaza.challenges.comments import ChallengeComments
from plaza.challenges.model import ChallengeCommentEdit, ChallengeCommentId, NewChallengeComment, PostId
from plaza.challenges.participation_reader import Participations
from plaza.challenges.posts import ChallengePosts
from plaza.challenges.service import Challenges
from plaza.core.errors import NotFound
from plaza.core.http.access import ADMIN, PUBLIC, USER
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.paging import Page
from plaza.web import challenge_html, forms
from plaza.web.comment_forms import CommentForms
from plaza.web.page_responses import PageResponses
from plaza.web.page_routes import PageRoutes
from plaza.web.routes_challenges import today
from plaza.web.text_html import next_page_link

page = PageRoutes()


@page.get("/challenges/posts/{id}", access=PUBLIC)
async def post_page(
    request: Request,
    site: PageResponses,
    id: PostId,
    service: Challenges,
    posts: ChallengePosts,
    comments: ChallengeComments,
    participations: Participations,
    cursor: str | None = None,
    reply_to: ChallengeCommentId | None = None,
) -> Response[str]:
    """Show a post in a challenge with its comments."""
    visitor = await site.visitors.from_request(request)
    post = await posts.read(visitor.actor, id)
    challenge = await service.read(visitor.actor, post.challenge_id)
    found = await comments.page(visitor.actor, id, Page(cursor=cursor))
    reacted = set() if visitor.actor is None else await participations.get_reacted(visitor.actor, [id])
    is_open, now = challenge.finished_date > today(site), site.clock.now_ms()
    parent = None
    if reply_to is not None:
        with suppress(NotFound):  # deleted meanwhile: then it is a comment on the post
            parent = await comments.get(visitor.actor, reply_to)
    context: dict[str, Any] = {"post": post, "challenge": challenge, "open": is_open, "parent": parent}
    card = challenge_html.challenge_posts([post], reacted, now, is_open=is_open, viewer=visitor.name).decode()
    context["card"] = Markup(card)  # noqa: S704
    context["rows"] = challenge_html.comment_rows(found.comments, post, visitor, now, is_open=is_open)
    context["more"] = next_page_link(f"/app/challenges/posts/{id}", found.pagination)
    context["comments_path"] = f"/app/challenges/posts/{id}/comments"
    response = site.page(request, visitor, "challenge-post-page.html", section="Challenges", **context)
    return await site.mentions.complete(response)


@page.post("/challenges/posts/{id}/comments", access=USER)
async def comment(
    request: Request, body: bytes, site: PageResponses, id: PostId, comments: ChallengeComments
) -> Response[str]:
    """Comment on a challenge post, or reply to a comment."""
    visitor = await site.visitors.from_request(request)
    new = forms.read_form(body, NewChallengeComment)
    created = await comments.create(visitor.require_user(), id, new, site.idempotency_key(request, body))
    return site.form_response(request, visitor, b"", f"/app/challenges/posts/{id}#comment-{created.id}")


@page.get("/challenges/posts/{id}/comments/{comment}/edit", access=USER)
async def edit_comment_page(
    request: Request, site: PageResponses, id: PostId, comment: ChallengeCommentId, comments: ChallengeComments
) -> Response[str]:
    """Show the form to edit a comment."""
    return await CommentForms(site, request, comments, comment, f"/app/challenges/posts/{id}", "Challenges").show()


@page.post("/challenges/posts/{id}/comments/{comment}/edit", access=USER)
async def edit_comment(
    request: Request,
    body: bytes,
    site: PageResponses,
    id: PostId,
    comment: ChallengeCommentId,
    comments: ChallengeComments,
) -> Response[str]:
    """Edit a comment on a challenge post (its author)."""
    path = f"/app/challenges/posts/{id}"
    form = CommentForms(site, request, comments, comment, path, "Challenges")
    return await form.save(body, ChallengeCommentEdit, lambda _: path)


@page.get("/challenges/posts/{id}/comments/{comment}/delete", access=ADMIN)
async def confirm_deletion(
    request: Request, site: PageResponses, id: PostId, comment: ChallengeCommentId, comments: ChallengeComments
) -> Response[str]:
    """Show an admin what a deletion does, before it is done."""
    return await CommentForms(site, request, comments, comment, f"/app/challenges/posts/{id}").ask()


@page.post("/challenges/posts/{id}/comments/{comment}/delete", access=USER, logged=True)
async def delete_comment(
    request: Request,
    body: bytes,
    site: PageResponses,
    id: PostId,
    comment: ChallengeCommentId,
    comments: ChallengeComments,
) -> Response[str]:
    """Delete a comment on a challenge post (its author, the post's author or an admin)."""
    return await CommentForms(site, request, comments, comment, f"/app/challenges/posts/{id}").delete(body)
