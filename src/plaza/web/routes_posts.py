"""Posts: one post with its comments, and everything users do with it.

Comments themselves are in `routes_comments.py`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from plaza.core.auth import API
from plaza.core.comment_tree import TOP_LEVEL
from plaza.core.errors import Forbidden, Invalid, NotFound
from plaza.core.http.access import ADMIN, PUBLIC, USER
from plaza.core.http.multipart import OVERHEAD_BYTES
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.paging import Page
from plaza.media.uploads import Uploads
from plaza.social.comments import Comments
from plaza.social.engagements import Engagements
from plaza.social.model import MAX_PICTURES, CommentId, NewPost, PostEdit, PostId
from plaza.social.posts import Posts
from plaza.web import attachments, forms, post_html
from plaza.web.operator_navigation import EFFECTS_OF_BAN, confirmation, quoted
from plaza.web.page_responses import PageResponses
from plaza.web.page_routes import PageRoutes
from plaza.web.text_html import MAX_TEXT_BYTES, fitting_count, next_page_link, truncate_text
from plaza.web.visitors import Visitor

page = PageRoutes()


@page.post(
    "/posts",
    access=USER,
    takes_files=True,
    body_limit=lambda settings: MAX_PICTURES * settings.media_max_bytes + OVERHEAD_BYTES,
)
async def create(request: Request, body: bytes, site: PageResponses, posts: Posts, uploads: Uploads) -> Response[str]:
    """Create a post, with the pictures that the form has or names."""
    visitor = await site.visitors.from_request(request)
    actor, fields = visitor.require_user(), forms.parse_form(body)
    content = attachments.text_fields(fields)
    forms.convert_fields(content, NewPost)  # before the pictures are uploaded, which takes time
    key = site.idempotency_key(request, body)
    pictures = await attachments.attach(request, actor, fields, uploads, key)
    new = forms.convert_fields({**content, "media": pictures}, NewPost)
    created = await posts.create(actor, new, key)
    card = post_html.post_card(created, site.clock.now_ms())
    path = f"/app/posts/{created.id}"
    response = site.form_response(request, visitor, body, path, "post-created.html", message="Posted.", card=card)
    return await site.mentions.complete(response)


@page.get("/posts/{id}", access=PUBLIC)
async def post(
    request: Request,
    site: PageResponses,
    id: PostId,
    posts: Posts,
    comments: Comments,
    cursor: str | None = None,
    thread: CommentId | None = None,
) -> Response[str]:
    """Show a post with its comments, or one comment with its replies (`thread`), oldest first."""
    visitor = await site.visitors.from_request(request)
    found = await posts.get(visitor.actor, id)
    now = site.clock.now_ms()
    card = post_html.post_card(found, now, is_complete=True)
    parent = await comments.get_in_thread(visitor.actor, id, thread) if thread else None
    parent_row = post_html.comment_row(parent, found, visitor, now) if parent else ""
    level = thread or TOP_LEVEL
    shown = await comments.page(visitor.actor, id, Page(cursor=cursor), level)
    texts = [comment.content for comment in shown.items]
    fitting = fitting_count(texts, MAX_TEXT_BYTES - len(card.encode()) - len(parent_row.encode()))
    if fitting < len(shown.items):
        shown = await comments.page(visitor.actor, id, Page(limit=fitting, cursor=cursor), level)
    response = site.page(
        request,
        visitor,
        "post.html",
        post=found,
        card=card,
        excerpt=truncate_text(found.content, 60),
        is_first_page=cursor is None,
        comments_path=f"/app/posts/{id}/comments",
        parent=parent,
        parent_row=parent_row,
        rows=post_html.comment_rows(shown.items, found, visitor, now),
        more=next_page_link(
            post_html.thread_path(id, thread), shown.pagination, "More replies" if thread else "More comments"
        ),
    )
    return await site.mentions.complete(response)


@page.post("/posts/{id}/like", access=USER)
async def like(
    request: Request, body: bytes, site: PageResponses, id: PostId, posts: Posts, engagements: Engagements
) -> Response[str]:
    """Like a post, or remove the like."""
    visitor = await site.visitors.from_request(request)
    await (engagements.like if forms.is_on(body) else engagements.unlike)(visitor.require_user(), id)
    return await _actions_response(request, body, site, visitor, id, posts)


@page.post("/posts/{id}/bookmark", access=USER)
async def bookmark(
    request: Request, body: bytes, site: PageResponses, id: PostId, posts: Posts, engagements: Engagements
) -> Response[str]:
    """Bookmark a post, or remove the bookmark."""
    visitor = await site.visitors.from_request(request)
    await (engagements.bookmark if forms.is_on(body) else engagements.unbookmark)(visitor.require_user(), id)
    return await _actions_response(request, body, site, visitor, id, posts)


async def _actions_response(
    request: Request, body: bytes, site: PageResponses, visitor: Visitor, id: str, posts: Posts
) -> Response[str]:
    actions = post_html.post_actions(await posts.get(visitor.actor, id))
    path = f"/app/posts/{id}#post-{id}"
    return site.form_response(request, visitor, body, path, "fragment.html", fragment=actions)


@page.get("/posts/{id}/ban", access=ADMIN)
async def confirm_ban(request: Request, site: PageResponses, id: PostId, posts: Posts) -> Response[str]:
    """Show what a ban does, before it is done."""
    found = await posts.get(API, id)  # an admin may block the author
    return await confirmation(
        request,
        site,
        "Reports",
        title=f"Ban the post of {found.username}?",
        effects=[*quoted(found.content), *EFFECTS_OF_BAN],
        fields={"on": "1"},
        button="Ban the post",
        back=f"/app/posts/{id}",
    )


@page.post("/posts/{id}/ban", access=ADMIN, logged_fields=("on",))
async def ban(request: Request, body: bytes, site: PageResponses, id: PostId, posts: Posts) -> Response[str]:
    """Ban or unban a post (admins)."""
    visitor = await site.visitors.from_request(request)
    on = forms.is_on(body)
    found = await posts.ban(visitor.require_user(), id, on=on)
    message = "Post banned." if on else "Post unbanned."
    return site.form_response(
        request, visitor, body, f"/app/posts/{id}", "ban-button.html", message=message, post=found
    )


@page.get("/posts/{id}/delete", access=ADMIN)
async def confirm_deletion(request: Request, site: PageResponses, id: PostId, posts: Posts) -> Response[str]:
    """Show an admin what a deletion does, before it is done."""
    found = await posts.get(API, id)  # an admin may block the author
    return await confirmation(
        request,
        site,
        "Reports",
        title=f"Delete the post of {found.username}?",
        effects=[
            *quoted(found.content),
            "The post is deleted, with its comments, likes and bookmarks. This cannot be undone.",
            "A ban hides it instead, and can be taken back.",
        ],
        button="Delete the post",
        back=f"/app/posts/{id}",
    )


@page.post("/posts/{id}/delete", access=USER, logged=True)
async def delete(request: Request, body: bytes, site: PageResponses, id: PostId, posts: Posts) -> Response[str]:
    """Delete a post (its author or an admin)."""
    visitor = await site.visitors.from_request(request)
    with suppress(NotFound):  # deleted by an earlier click
        await posts.delete(visitor.require_user(), id)
    return site.form_response(request, visitor, b"", "/app")


@page.get("/posts/{id}/edit", access=USER)
async def edit_page(request: Request, site: PageResponses, id: PostId, posts: Posts) -> Response[str]:
    """Show the form to edit a post."""
    visitor = await site.visitors.from_request(request)
    found = await posts.get(visitor.require_user(), id)
    if found.username != visitor.name:
        raise Forbidden("Only the author can edit a post.")
    return site.page(request, visitor, "post-edit.html", id=id, content=found.content, problem="")


@page.post("/posts/{id}/edit", access=USER)
async def edit(request: Request, body: bytes, site: PageResponses, id: PostId, posts: Posts) -> Response[str]:
    """Edit a post (its author)."""
    visitor = await site.visitors.from_request(request)
    try:
        await posts.edit(visitor.require_user(), id, forms.read_form(body, PostEdit))
    except Invalid as error:
        content = forms.parse_form(body).get("content", "")
        values: dict[str, Any] = {"id": id, "content": content, "problem": error.detail}
        return site.page(request, visitor, "post-edit.html", status=error.status, **values)
    return site.form_response(request, visitor, b"", f"/app/posts/{id}")
