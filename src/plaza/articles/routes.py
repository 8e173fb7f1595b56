"""Articles over HTTP."""

from __future__ import annotations

from plaza.articles.lists import Lists
from plaza.articles.model import (
    Article,
    ArticleId,
    ArticlesPage,
    ArticlesQuery,
    Deleted,
    GroupName,
    GroupsPage,
    Membership,
    NewArticle,
    NewVote,
    Vote,
)
from plaza.articles.service import Articles
from plaza.core.auth import Actor
from plaza.core.http.request import Request
from plaza.core.http.routes import Routes
from plaza.core.paging import Page

route = Routes("articles", about="Links that people post and vote on.")


@route.post("/articles", status=201, idempotent=True)
async def post(actor: Actor, body: NewArticle, request: Request, articles: Articles) -> Article:
    """Post an article; its author's own vote counts. The same link within a day is 409 with the first one's `id`."""
    return await articles.post(actor, body, request.operation)


@route.get("/articles")
async def page(actor: Actor | None, query: ArticlesQuery, lists: Lists) -> ArticlesPage:
    """All articles, 25 a page, by `score`, `time`, `hot`, `best` or `controversial`."""
    return await lists.all(actor, query)


@route.get("/articles/{id}")
async def read(actor: Actor | None, id: ArticleId, articles: Articles) -> Article:
    """One article; with credentials, `vote` is one's own."""
    return await articles.read(actor, id)


@route.delete("/articles/{id}")
async def delete(actor: Actor, id: ArticleId, articles: Articles) -> Deleted:
    """Remove an article and every trace of it: for its author and admins."""
    return await articles.delete(actor, id)


@route.put("/articles/{id}/vote")
async def vote(actor: Actor, id: ArticleId, body: NewVote, articles: Articles) -> Vote:
    """Vote up or down, or switch. The same vote again changes nothing."""
    return await articles.vote(actor, id, body.direction)


@route.delete("/articles/{id}/vote")
async def take_back(actor: Actor, id: ArticleId, articles: Articles) -> Vote:
    """Take one's vote back."""
    return await articles.vote(actor, id, None)


@route.put("/articles/{id}/groups/{name}")
async def put_in_group(actor: Actor, id: ArticleId, name: GroupName, articles: Articles) -> Membership:
    """Put an article in a group: for its author and admins."""
    return await articles.group(actor, id, name, "in")


@route.delete("/articles/{id}/groups/{name}")
async def take_out_of_group(actor: Actor, id: ArticleId, name: GroupName, articles: Articles) -> Membership:
    """Take an article out of a group: for its author and admins."""
    return await articles.group(actor, id, name, "out")


@route.get("/groups")
async def groups(page: Page, lists: Lists) -> GroupsPage:
    """Groups that have articles, the largest first."""
    return await lists.groups(page)


@route.get("/groups/{name}/articles")
async def page_of_group(actor: Actor | None, name: GroupName, query: ArticlesQuery, lists: Lists) -> ArticlesPage:
    """A group's articles. A new vote shows within a minute."""
    return await lists.of_group(actor, name, query)
