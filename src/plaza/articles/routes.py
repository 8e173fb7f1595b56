"""The HTTP routes of articles."""

from __future__ import annotations

from plaza.articles.atom import ArticleAtomFeeds
from plaza.articles.comments import ArticleComments
from plaza.articles.lists import ArticleLists
from plaza.articles.model import (
    AnyGroupName,
    Article,
    ArticleComment,
    ArticleCommentEdit,
    ArticleCommentId,
    ArticleCommentsPage,
    ArticleId,
    ArticleMembership,
    ArticleReplyTo,
    ArticlesPage,
    ArticlesQuery,
    BadCounter,
    DeletedArticle,
    DeletedArticleComment,
    DuplicateLink,
    GroupName,
    GroupsPage,
    NewArticle,
    NewArticleComment,
    NewVote,
    Order,
    TooManyGroups,
    Vote,
    VotingClosed,
)
from plaza.articles.service import Articles
from plaza.core import atom
from plaza.core.auth import Actor
from plaza.core.errors import Gone
from plaza.core.http.access import AUTHENTICATED, PUBLIC, USER
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.http.routes import Routes
from plaza.core.paging import Page

route = Routes("articles", about="Links that users post and vote on.")


@route.post(
    "/articles",
    access=USER,
    status=201,
    idempotent=True,
    raises=[DuplicateLink, BadCounter],
    example={"title": "Sorted sets", "link": "https://valkey.io/topics/sorted-sets/", "groups": ["python"]},
)
async def create_article(actor: Actor, body: NewArticle, request: Request, articles: Articles) -> Article:
    """Post an article. The author's vote counts. The same link within a day is 409 with the first article's `id`."""
    return await articles.post(actor, body, request.operation)


@route.get("/articles", access=PUBLIC, raises=[Gone])
async def list_articles(actor: Actor | None, query: ArticlesQuery, lists: ArticleLists) -> ArticlesPage:
    """List articles by `score`, `time`, `hot`, `best`, `top` or `controversial`, 25 a page by default."""
    return await lists.list_articles(actor, query)


@route.get("/articles/{id}", access=PUBLIC)
async def get_article(actor: Actor | None, id: ArticleId, articles: Articles) -> Article:
    """Read an article. `vote` is the caller's own vote."""
    return await articles.read(actor, id)


@route.delete("/articles/{id}", access=AUTHENTICATED)
async def delete_article(actor: Actor, id: ArticleId, articles: Articles) -> DeletedArticle:
    """Delete an article and its votes (its author or an admin)."""
    return await articles.delete(actor, id)


@route.put("/articles/{id}/vote", access=USER, raises=[VotingClosed], example={"direction": "up"})
async def vote_on_article(actor: Actor, id: ArticleId, body: NewVote, articles: Articles) -> Vote:
    """Vote an article up or down, or switch the vote. Repeating a vote changes nothing."""
    return await articles.vote(actor, id, body.direction)


@route.delete("/articles/{id}/vote", access=USER, raises=[VotingClosed])
async def remove_article_vote(actor: Actor, id: ArticleId, articles: Articles) -> Vote:
    """Remove the caller's vote."""
    return await articles.vote(actor, id, None)


@route.put("/articles/{id}/groups/{name}", access=AUTHENTICATED, raises=[TooManyGroups])
async def add_article_to_group(actor: Actor, id: ArticleId, name: GroupName, articles: Articles) -> ArticleMembership:
    """Add an article to a group (its author or an admin)."""
    return await articles.group(actor, id, name, "in")


@route.delete("/articles/{id}/groups/{name}", access=AUTHENTICATED)
async def remove_article_from_group(
    actor: Actor, id: ArticleId, name: AnyGroupName, articles: Articles
) -> ArticleMembership:
    """Remove an article from a group (its author or an admin)."""
    return await articles.group(actor, id, name, "out")


@route.get("/groups", access=PUBLIC, raises=[Gone])
async def list_groups(page: Page, lists: ArticleLists) -> GroupsPage:
    """List groups that have articles, largest first."""
    return await lists.list_groups(page)


@route.get("/groups/{name}/articles", access=PUBLIC, raises=[Gone])
async def list_group_articles(
    actor: Actor | None, name: AnyGroupName, query: ArticlesQuery, lists: ArticleLists
) -> ArticlesPage:
    """List a group's articles. A new vote shows within a minute."""
    return await lists.list_group(actor, name, query)


@route.post(
    "/articles/{id}/comments",
    access=USER,
    status=201,
    idempotent=True,
    example={"content": "The part on ranges is worth reading twice."},
)
async def create_article_comment(
    actor: Actor, id: ArticleId, body: NewArticleComment, request: Request, comments: ArticleComments
) -> ArticleComment:
    """Comment on an article, or reply to a comment on it (`reply_to`)."""
    return await comments.create(actor, id, body, request.operation)


@route.get("/articles/{id}/comments", access=PUBLIC)
async def list_article_comments(
    actor: Actor | None, id: ArticleId, page: Page, comments: ArticleComments, reply_to: ArticleReplyTo | None = None
) -> ArticleCommentsPage:
    """List the comments on an article, oldest first: all, or those on one level of the thread."""
    found = await comments.page(actor, id, page, reply_to)
    return ArticleCommentsPage(found.items, found.pagination)


@route.patch("/article-comments/{id}", access=USER, example={"content": "Worth reading twice"})
async def edit_article_comment(
    actor: Actor, id: ArticleCommentId, body: ArticleCommentEdit, comments: ArticleComments
) -> ArticleComment:
    """Edit the text of the caller's comment. The old text is kept."""
    return await comments.edit(actor, id, body)


@route.delete("/article-comments/{id}", access=AUTHENTICATED)
async def delete_article_comment(
    actor: Actor, id: ArticleCommentId, comments: ArticleComments
) -> DeletedArticleComment:
    """Delete a comment (its author, the article's author or an admin). With replies it leaves a stub without text."""
    return await comments.delete(actor, id)


@route.get("/articles.atom", access=PUBLIC, media_type=atom.MEDIA_TYPE, in_openapi=False)
async def get_articles_atom(request: Request, feeds: ArticleAtomFeeds, order: Order = "score") -> Response[bytes]:
    """Get the first articles in an order as an Atom feed. Supports `If-None-Match`."""
    return await feeds.all(request, order)


@route.get("/groups/{name}.atom", access=PUBLIC, media_type=atom.MEDIA_TYPE, in_openapi=False)
async def get_group_atom(request: Request, name: AnyGroupName, feeds: ArticleAtomFeeds) -> Response[bytes]:
    """Get the newest articles of a group as an Atom feed. Supports `If-None-Match`."""
    return await feeds.group(request, name)
