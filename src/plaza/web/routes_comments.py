"""Comments on posts: write, reply, edit, delete."""

from __future__ import annotations

from functools import partial
from typing import Any

from plaza.core.http.access import ADMIN, USER
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.paging import Page
from plaza.social.comments import Comments
from plaza.social.model import CommentEdit, CommentId, NewComment, PostId
from plaza.social.posts import Posts
from plaza.web import forms, post_html
from plaza.web.comment_forms import CommentForms
from plaza.web.page_responses import PageResponses
from plaza.web.page_routes import PageRoutes

page = PageRoutes()


@page.post("/posts/{id}/comments", access=USER)
async def comment(
    request: Request, body: bytes, site: PageResponses, id: PostId, posts: Posts, comments: Comments
) -> Response[str]:
    """Comment on a post, or reply to a comment."""
    visitor = await site.visitors.from_request(request)
    new = forms.read_form(body, NewComment)
    created = await comments.create(visitor.require_user(), id, new, site.idempotency_key(request, body))
    found = await posts.get(visitor.actor, id)
    row = post_html.comment_row(created, found, visitor, site.clock.now_ms())
    # The newest comment is the last one. If there is more than one page, the cursor leads to it.
    path = post_html.thread_path(id, new.reply_to)
    if found.commentsCount > Page().limit:
        path += f"{'&' if new.reply_to else '?'}cursor={comments.cursor_at(created)}"
    path += f"#comment-{created.id}"
    parent = {"id": new.reply_to} if new.reply_to else None
    context: dict[str, Any] = {"count": found.commentsCount, "parent": parent, "comment": row}
    context |= {"comments_path": f"/app/posts/{id}/comments", "actions": post_html.post_actions(found)}
    response = site.form_response(
        request, visitor, body, path, "comment-created.html", message="Comment added.", **context
    )
    return await site.mentions.complete(response)


@page.get("/posts/{id}/comments/{comment}/delete", access=ADMIN)
async def confirm_deletion(
    request: Request, site: PageResponses, id: PostId, comment: CommentId, comments: Comments
) -> Response[str]:
    """Show an admin what a deletion does, before it is done."""
    return await CommentForms(site, request, comments, comment, f"/app/posts/{id}").ask()


@page.post("/posts/{id}/comments/{comment}/delete", access=USER, logged=True)
async def delete_comment(
    request: Request, body: bytes, site: PageResponses, id: PostId, comment: CommentId, comments: Comments
) -> Response[str]:
    """Delete a comment (its author, the post's author or an admin)."""
    return await CommentForms(site, request, comments, comment, f"/app/posts/{id}").delete(body)


@page.get("/posts/{id}/comments/{comment}/edit", access=USER)
async def edit_page(
    request: Request, site: PageResponses, id: PostId, comment: CommentId, comments: Comments
) -> Response[str]:
    """Show the form to edit a comment."""
    return await CommentForms(site, request, comments, comment, f"/app/posts/{id}").show()


@page.post("/posts/{id}/comments/{comment}/edit", access=USER)
async def edit(
    request: Request, body: bytes, site: PageResponses, id: PostId, comment: CommentId, comments: Comments
) -> Response[str]:
    """Edit a comment (its author)."""
    form = CommentForms(site, request, comments, comment, f"/app/posts/{id}")
    return await form.save(body, CommentEdit, partial(post_html.thread_path, id))
