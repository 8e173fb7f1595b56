"""Articles in every order, their groups, and votes."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final, get_args
from urllib.parse import quote

from plaza.articles.lists import ArticleLists
from plaza.articles.model import (
    Article,
    ArticleId,
    ArticlesPage,
    ArticlesQuery,
    Direction,
    GroupName,
    NewArticle,
    NewVote,
    Order,
)
from plaza.articles.service import Articles
from plaza.core.errors import Conflict, Invalid, NotFound
from plaza.core.http.access import PUBLIC, USER
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.web import article_html, forms
from plaza.web.rendering import tabs
from plaza.web.routing import PageRoutes
from plaza.web.sidebar import Noticeboard
from plaza.web.site import Site
from plaza.web.text_html import older
from plaza.web.visitors import Visitor

page = PageRoutes()

ORDERS: Final = {
    "score": "Top",
    "time": "New",
    "hot": "Hot",
    "best": "Best",
    "controversial": "Disputed",
}
assert set(ORDERS) == set(get_args(Order))


@page.get("/articles", access=PUBLIC)
async def articles(
    request: Request,
    site: Site,
    lists: ArticleLists,
    articles: Articles,
    notices: Noticeboard,
    order: Order = "score",
    cursor: str | None = None,
) -> Response[str]:
    """All articles, in an order."""
    who = await site.visitors.of(request)
    found = await lists.list_articles(who.actor, ArticlesQuery(order=order, cursor=cursor))
    return await _list(site, request, who, notices, articles, found, "/app/articles", order, "Articles")


@page.get("/groups/{name}", access=PUBLIC)
async def group(
    request: Request,
    site: Site,
    name: GroupName,
    lists: ArticleLists,
    articles: Articles,
    notices: Noticeboard,
    order: Order = "score",
    cursor: str | None = None,
) -> Response[str]:
    """A group's articles, in an order. A new vote counts here within a minute."""
    who = await site.visitors.of(request)
    found = await lists.list_group(who.actor, name, ArticlesQuery(order=order, cursor=cursor))
    return await _list(site, request, who, notices, articles, found, f"/app/groups/{quote(name)}", order, name)


async def _list(
    site: Site,
    request: Request,
    who: Visitor,
    notices: Noticeboard,
    articles: Articles,
    found: ArticlesPage,
    path: str,
    order: Order,
    title: str,
) -> Response[str]:
    await notices.ready()
    return site.page(
        request,
        who,
        "articles.html",
        section="Articles",
        title=title,
        rows=article_html.rows(found.articles, site.clock.now_ms(), articles.open_since()),
        tabs=tabs("Order", tuple((shown, f"{path}?order={name}") for name, shown in ORDERS.items()), ORDERS[order]),
        groups=notices.groups(title),
        more=older(f"{path}?order={order}", found.pagination, "More"),
    )


@page.get("/articles/new", access=USER)
async def new_article(request: Request, site: Site) -> Response[str]:
    """Where one posts an article."""
    who = await site.visitors.of(request)
    who.person()
    return _form(site, request, who)


def _form(site: Site, request: Request, who: Visitor, *, status: int = 200, **said: Any) -> Response[str]:
    given = {"title": "", "link": "", "groups": "", "problem": "", "field": "", "first": None, **said}
    return site.page(request, who, "article-new.html", section="Articles", status=status, **given)


@page.post("/articles", access=USER)
async def post_article(request: Request, body: bytes, site: Site, articles: Articles) -> Response[str]:
    """Post an article; its author's own vote counts."""
    who = await site.visitors.of(request)
    fields = forms.fields_of(body)
    given = {name: fields.get(name, "") for name in ("title", "link", "groups")}
    groups = given["groups"].replace(",", " ").lower().split()
    try:
        new = forms.convert({**given, "groups": groups}, NewArticle)
        made = await articles.post(who.person(), new, site.operation(request, body))
    except (Invalid, Conflict) as error:
        about = {"problem": error.detail, "field": error.extra.get("field", ""), "first": error.extra.get("id")}
        return _form(site, request, who, status=error.status, **about, **given)
    return site.done(request, who, b"", f"/app/articles/{made.id}")


@page.get("/articles/{id}", access=PUBLIC)
async def article(request: Request, site: Site, id: ArticleId, articles: Articles) -> Response[str]:
    """One article."""
    who = await site.visitors.of(request)
    found = await articles.read(who.actor, id)
    votes: dict[str, Any] = {"votes": article_html.votes(found, articles.open_since())}
    return site.page(request, who, "article.html", section="Articles", article=found, author=author_of(found), **votes)


@page.post("/articles/{id}/vote", access=USER)
async def vote(request: Request, body: bytes, site: Site, id: ArticleId, articles: Articles) -> Response[str]:
    """Vote up or down, switch, or take the vote back."""
    who = await site.visitors.of(request)
    await articles.vote(who.person(), id, direction_of(body))
    found = await articles.read(who.actor, id)
    return site.done(
        request,
        who,
        body,
        f"/app/articles/{id}#article-{id}",
        "piece.html",
        piece=article_html.votes(found, articles.open_since()),
    )


@page.post("/articles/{id}/delete", access=USER)
async def delete(request: Request, body: bytes, site: Site, id: ArticleId, articles: Articles) -> Response[str]:
    """Remove one's own article."""
    who = await site.visitors.of(request)
    with suppress(NotFound):  # by a second click: then it is gone
        await articles.delete(who.person(), id)
    return site.done(request, who, b"", "/app/articles?order=time")


def direction_of(body: bytes) -> Direction | None:
    """Which way a pressed arrow goes; none for one that takes the vote back."""
    if forms.fields_of(body).get("direction") == "none":
        return None
    return forms.read(body, NewVote).direction


def author_of(article: Article) -> str:
    return article.author.removeprefix("user:")
