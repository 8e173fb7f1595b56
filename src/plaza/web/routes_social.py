"""Explore, and what one does with posts."""

from __future__ import annotations

from plaza.core.answers import Answer
from plaza.core.call import Call
from plaza.core.paging import Page, Paged
from plaza.social.feeds import Feeds
from plaza.social.model import FeedItem, NewPost, PostId
from plaza.social.posts import Posts
from plaza.web import forms, posts
from plaza.web.routing import PageRoutes
from plaza.web.site import Site

page = PageRoutes()


def older(path: str, paged: Paged[FeedItem]) -> str:
    """The address of the next page, if there is one."""
    cursor = paged.pagination.next_cursor
    return f"{path}?cursor={cursor}" if cursor else ""


@page.get("")
async def explore(call: Call, site: Site, feeds: Feeds, cursor: str | None = None) -> Answer[str]:
    """All posts, newest first."""
    who = await site.visitors.of(call)
    found = await feeds.explore(who.actor, Page(cursor=cursor), users=False)
    return site.page(
        call,
        who,
        "feed.html",
        section="Explore",
        title="Explore",
        lead="",
        composer=cursor is None,
        tabs=None,
        cards=posts.cards(found.items, site.clock.now_ms()),
        empty="Nobody has said anything yet. Be the first.",
        more=older("/app", found),
    )


@page.post("/posts")
async def create(call: Call, body: bytes, site: Site, social: Posts) -> Answer[str]:
    """Post something."""
    who = await site.visitors.of(call)
    made = await social.create(who.person(), forms.read(body, NewPost), site.operation(call, body))
    return site.done(
        call,
        who,
        body,
        f"/app/posts/{made.id}",
        "posted.html",
        said="Posted.",
        card=posts.card(made, site.clock.now_ms()),
    )


@page.post("/posts/{id}/like")
async def like(call: Call, body: bytes, site: Site, id: PostId, social: Posts) -> Answer[str]:
    """Like a post, or take the like back."""
    who = await site.visitors.of(call)
    await (social.like if forms.is_on(body) else social.unlike)(who.person(), id)
    return site.done(
        call, who, body, f"/app/posts/{id}", "piece.html", piece=posts.acts(await social.get(who.actor, id))
    )
