"""What the signed-in user has written and voted on: articles, votes and comments, as tabs of the own profile."""

from __future__ import annotations

import asyncio
from typing import Any

from plaza.articles.comments import ArticleComments
from plaza.articles.lists import ArticleLists
from plaza.articles.model import ArticlesPage
from plaza.articles.service import Articles
from plaza.core.http.access import USER
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.paging import Page, Pagination
from plaza.social.comments import Comments
from plaza.social.model import Post
from plaza.social.posts import Posts
from plaza.social.users import Users
from plaza.web import article_html
from plaza.web.comment_html import ShownComment
from plaza.web.page_responses import PageResponses
from plaza.web.page_routes import PageRoutes
from plaza.web.rendering import shown_domains, tabs
from plaza.web.text_html import next_page_link, truncate_text, user_path

page = PageRoutes()
articles_page = PageRoutes()

EXCERPT_CHARACTERS = 300
SUBJECT_CHARACTERS = 80


def own_tabs(username: str, current: str) -> str:
    """The tabs of the own profile."""
    views = [("Posts", user_path(username)), ("Comments", "/app/you/comments")]
    if "articles" in shown_domains():
        views[1:1] = [("Articles", "/app/you/articles"), ("Votes", "/app/you/votes")]
    return tabs("Your activity", tuple(views), current)


async def _own_page(
    request: Request, site: PageResponses, users: Users, tab: str, path: str, pagination: Pagination, **context: Any
) -> Response[str]:
    visitor = await site.visitors.from_request(request)
    values: dict[str, Any] = {
        "user": await users.get(visitor.actor, visitor.name),
        "is_other": False,
        "tab": tab,
        "tabs": own_tabs(visitor.name, tab),
        "more": next_page_link(path, pagination),
        "comments": (),
        "rows": b"",
        **context,
    }
    return site.page(request, visitor, "own-activity.html", **values)


@page.get("/you/comments", access=USER)
async def own_comments(
    request: Request, site: PageResponses, users: Users, comments: Comments, posts: Posts, cursor: str | None = None
) -> Response[str]:
    """List your comments on posts, latest first."""
    visitor = await site.visitors.from_request(request)
    found = await comments.written_by(visitor.require_user(), Page(cursor=cursor))
    ids = dict.fromkeys(c.post_id for c in found.items)
    read = await asyncio.gather(*(posts.get(visitor.actor, id) for id in ids), return_exceptions=True)
    subjects = {each.id: f"a post by {each.username}: {each.content}" for each in read if isinstance(each, Post)}
    rows = [_row(c, f"/app/posts/{c.post_id}", subjects.get(c.post_id, "")) for c in found.items]
    context = {"comments": rows, "other": "articles"}
    return await _own_page(request, site, users, "Comments", "/app/you/comments", found.pagination, **context)


@articles_page.get("/you/comments/articles", access=USER)
async def own_article_comments(
    request: Request,
    site: PageResponses,
    users: Users,
    comments: ArticleComments,
    articles: Articles,
    cursor: str | None = None,
) -> Response[str]:
    """List your comments on articles, latest first."""
    visitor = await site.visitors.from_request(request)
    found = await comments.written_by(visitor.require_user(), Page(cursor=cursor))
    ids = list(dict.fromkeys(c.article_id for c in found.items))
    subjects = {each.id: each.title for each in await articles.read_many(visitor.actor, ids) if each is not None}
    rows = [_row(c, f"/app/articles/{c.article_id}", subjects.get(c.article_id, "")) for c in found.items]
    context = {"comments": rows, "other": "posts"}
    return await _own_page(request, site, users, "Comments", "/app/you/comments/articles", found.pagination, **context)


@articles_page.get("/you/articles", access=USER)
async def own_articles(
    request: Request,
    site: PageResponses,
    users: Users,
    lists: ArticleLists,
    articles: Articles,
    cursor: str | None = None,
) -> Response[str]:
    """List the articles that you posted, latest first."""
    visitor = await site.visitors.from_request(request)
    found = await lists.posted_by(visitor.require_user(), visitor.name, Page(cursor=cursor))
    return await _articles_response(request, site, users, articles, found, "Articles", "/app/you/articles")


@articles_page.get("/you/votes", access=USER)
async def own_votes(
    request: Request,
    site: PageResponses,
    users: Users,
    lists: ArticleLists,
    articles: Articles,
    cursor: str | None = None,
) -> Response[str]:
    """List the articles that you voted on: up, then down."""
    visitor = await site.visitors.from_request(request)
    found = await lists.voted_by(visitor.require_user(), Page(cursor=cursor))
    return await _articles_response(request, site, users, articles, found, "Votes", "/app/you/votes")


async def _articles_response(
    request: Request, site: PageResponses, users: Users, articles: Articles, found: ArticlesPage, tab: str, path: str
) -> Response[str]:
    rows = article_html.article_rows(found.articles, site.clock.now_ms(), articles.open_since())
    return await _own_page(request, site, users, tab, path, found.pagination, rows=rows, other="")


def _row(comment: ShownComment, path: str, subject: str) -> tuple[str, str, int, str]:
    """The address, the text and the time of a comment, and what it is on: empty if that is gone by now."""
    text = truncate_text(comment.content, EXCERPT_CHARACTERS)
    return f"{path}?thread={comment.id}#comments", text, comment.created_at, truncate_text(subject, SUBJECT_CHARACTERS)
