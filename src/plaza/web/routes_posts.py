"""One post with its comments, and what one does with it."""

from __future__ import annotations

from contextlib import suppress

from markupsafe import Markup

from plaza.core.errors import Forbidden, Invalid, NotFound
from plaza.core.http.access import ADMIN, PUBLIC, USER
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.paging import Page
from plaza.social.comments import Comments
from plaza.social.engagements import Engagements
from plaza.social.model import CommentId, NewComment, NewPost, PostEdit, PostId
from plaza.social.posts import Posts
from plaza.web import forms, post_html
from plaza.web.routing import PageRoutes
from plaza.web.site import Site
from plaza.web.text_html import ROOM, cut, fitting, older

page = PageRoutes()


@page.post("/posts", access=USER)
async def create(request: Request, body: bytes, site: Site, social: Posts) -> Response[str]:
    """Post something."""
    who = await site.visitors.of(request)
    made = await social.create(who.person(), forms.read(body, NewPost), site.operation(request, body))
    card = post_html.card(made, site.clock.now_ms())
    return site.done(request, who, body, f"/app/posts/{made.id}", "posted.html", said="Posted.", card=card)


@page.get("/posts/{id}", access=PUBLIC)
async def post(
    request: Request, site: Site, id: PostId, social: Posts, comments: Comments, cursor: str | None = None
) -> Response[str]:
    """A post with what is said below it."""
    who = await site.visitors.of(request)
    found = await social.get(who.actor, id)
    now = site.clock.now_ms()
    card = post_html.card(found, now, whole=True)
    said = await comments.page(who.actor, id, Page(cursor=cursor))
    fit = fitting([each.content for each in said.items], ROOM - len(card.encode()))
    if fit < len(said.items):
        said = await comments.page(who.actor, id, Page(limit=fit, cursor=cursor))
    return site.page(
        request,
        who,
        "post.html",
        post=found,
        card=card,
        excerpt=cut(found.content, 60),
        later=cursor is not None,
        rows=post_html.comments(said.items, found, who, now),
        more=older(f"/app/posts/{id}", said.pagination, "More comments"),
    )


@page.post("/posts/{id}/like", access=USER)
async def like(
    request: Request, body: bytes, site: Site, id: PostId, social: Posts, engagements: Engagements
) -> Response[str]:
    """Like a post, or take the like back."""
    who = await site.visitors.of(request)
    await (engagements.like if forms.is_on(body) else engagements.unlike)(who.person(), id)
    piece = post_html.acts(await social.get(who.actor, id))
    return site.done(request, who, body, f"/app/posts/{id}#post-{id}", "piece.html", piece=piece)


@page.post("/posts/{id}/bookmark", access=USER)
async def bookmark(
    request: Request, body: bytes, site: Site, id: PostId, social: Posts, engagements: Engagements
) -> Response[str]:
    """Bookmark a post, or take the bookmark away."""
    who = await site.visitors.of(request)
    await (engagements.bookmark if forms.is_on(body) else engagements.unbookmark)(who.person(), id)
    piece = post_html.acts(await social.get(who.actor, id))
    return site.done(request, who, body, f"/app/posts/{id}#post-{id}", "piece.html", piece=piece)


@page.post("/posts/{id}/ban", access=ADMIN)
async def ban(request: Request, body: bytes, site: Site, id: PostId, social: Posts) -> Response[str]:
    """Take a post out of every feed, or bring it back: for admins."""
    who = await site.visitors.of(request)
    on = forms.is_on(body)
    found = await social.ban(who.person(), id, on=on)
    said = "It is banned." if on else "It is back."
    return site.done(request, who, body, f"/app/posts/{id}", "ban.html", said=said, post=found)


@page.post("/posts/{id}/delete", access=USER)
async def delete(request: Request, body: bytes, site: Site, id: PostId, social: Posts) -> Response[str]:
    """Delete one's own post."""
    who = await site.visitors.of(request)
    with suppress(NotFound):  # by a second click: then it is gone
        await social.delete(who.person(), id)
    return site.done(request, who, b"", "/app")


@page.post("/posts/{id}/comments", access=USER)
async def comment(
    request: Request, body: bytes, site: Site, id: PostId, social: Posts, comments: Comments
) -> Response[str]:
    """Say something below a post."""
    who = await site.visitors.of(request)
    made = await comments.create(who.person(), id, forms.read(body, NewComment), site.operation(request, body))
    found = await social.get(who.actor, id)
    shown = Markup(post_html.comments([made], found, who, site.clock.now_ms()).decode())  # noqa: S704
    # The newest is the last: where there are more than one page, it is on another.
    place = f"?cursor={comments.cursor_at(made)}" if found.commentsCount > Page().limit else ""
    to = f"/app/posts/{id}{place}#comment-{made.id}"
    said = {"post": found, "comment": shown, "acts": post_html.acts(found)}
    return site.done(request, who, body, to, "commented.html", said="Commented.", **said)


@page.get("/posts/{id}/edit", access=USER)
async def edit_page(request: Request, site: Site, id: PostId, social: Posts) -> Response[str]:
    """Where one changes what one's own post says."""
    who = await site.visitors.of(request)
    found = await social.get(who.person(), id)
    if found.username != who.name:
        raise Forbidden("Only its author may edit a post.")
    return site.page(request, who, "post-edit.html", id=id, content=found.content, problem="")


@page.post("/posts/{id}/edit", access=USER)
async def edit(request: Request, body: bytes, site: Site, id: PostId, social: Posts) -> Response[str]:
    """Change what one's own post says. What it said before is kept."""
    who = await site.visitors.of(request)
    try:
        await social.edit(who.person(), id, forms.read(body, PostEdit))
    except Invalid as error:
        content = forms.fields_of(body).get("content", "")
        return site.page(
            request, who, "post-edit.html", status=error.status, id=id, content=content, problem=error.detail
        )
    return site.done(request, who, b"", f"/app/posts/{id}")


@page.post("/posts/{id}/comments/{comment}/delete", access=USER)
async def uncomment(
    request: Request, body: bytes, site: Site, id: PostId, comment: CommentId, comments: Comments
) -> Response[str]:
    """Take a comment away: its author, the post's owner or an admin."""
    who = await site.visitors.of(request)
    with suppress(NotFound):
        await comments.delete(who.person(), comment)
    return site.done(request, who, body, f"/app/posts/{id}#comments")
