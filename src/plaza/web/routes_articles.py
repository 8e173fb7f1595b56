"""Articles in several orders, their groups, and votes."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any, Final, get_args
from urllib.parse import quote

from plaza.articles.comments import ArticleComments
from plaza.articles.lists import ArticleLists
from plaza.articles.model import (
    AnyGroupName,
    ArticleCommentEdit,
    ArticleCommentId,
    ArticleId,
    ArticlesPage,
    ArticlesQuery,
    Direction,
    NewArticle,
    NewArticleComment,
    NewVote,
    Order,
    Period,
)
from plaza.articles.service import Articles
from plaza.core.comment_tree import TOP_LEVEL
from plaza.core.errors import Conflict, Invalid, NotFound
from plaza.core.http.access import ADMIN, PUBLIC, USER
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.http.router import encode_segment
from plaza.core.paging import Page
from plaza.web import article_html, forms
from plaza.web.comment_forms import CommentForms
from plaza.web.operator_navigation import confirmation
from plaza.web.page_responses import PageResponses
from plaza.web.page_routes import PageRoutes
from plaza.web.rendering import tabs
from plaza.web.security import local_path
from plaza.web.sidebar import Sidebar
from plaza.web.text_html import MAX_TEXT_BYTES, article_title, fitting_count, next_page_link
from plaza.web.visitors import Visitor

page = PageRoutes()

# Labels of the orders, in the order of the tabs, and what each one means.
ORDERS: Final = {
    "score": ("Hot now", "By votes and age: a vote is worth 7 minutes of age."),
    "top": ("Top", "The most votes up, less the votes down."),
    "time": ("New", "The newest first."),
    "hot": ("Trending", "By votes and age: ten times the votes are worth half a day of age."),
    "best": ("Best", "The largest share of votes up, at any age."),
    "controversial": ("Disputed", "As many votes down as up, and many of both."),
}
assert set(ORDERS) == set(get_args(Order))
PERIODS: Final = {"day": "Today", "week": "This week", "all": "All time"}


@page.get("/articles", access=PUBLIC)
async def articles(
    request: Request,
    site: PageResponses,
    lists: ArticleLists,
    articles: Articles,
    sidebar: Sidebar,
    order: Order = "score",
    period: Period = "all",
    cursor: str | None = None,
) -> Response[str]:
    """List articles in an order; the top ones of a day, a week or all time."""
    visitor = await site.visitors.from_request(request)
    query = ArticlesQuery(order=order, period=period, cursor=cursor)
    found = await lists.list_articles(visitor.actor, query)
    context = await _list_context(site, sidebar, articles, found, "/app/articles", query, "Articles")
    atom = f"/articles.atom?order={order}"
    return site.page(request, visitor, "articles.html", section="Articles", atom=atom, **context)


@page.get("/groups/{name}", access=PUBLIC)
async def group(
    request: Request,
    site: PageResponses,
    name: AnyGroupName,
    lists: ArticleLists,
    articles: Articles,
    sidebar: Sidebar,
    order: Order = "score",
    period: Period = "all",
    cursor: str | None = None,
) -> Response[str]:
    """List the articles of a group in an order. A new vote counts within a minute."""
    visitor = await site.visitors.from_request(request)
    query = ArticlesQuery(order=order, period=period, cursor=cursor)
    found = await lists.list_group(visitor.actor, name, query)
    context = await _list_context(site, sidebar, articles, found, f"/app/groups/{quote(name)}", query, name)
    atom = f"/groups/{encode_segment(name)}.atom"
    return site.page(request, visitor, "articles.html", section="Articles", atom=atom, **context)


async def _list_context(
    site: PageResponses,
    sidebar: Sidebar,
    articles: Articles,
    found: ArticlesPage,
    path: str,
    query: ArticlesQuery,
    title: str,
) -> dict[str, Any]:
    await sidebar.wait_until_loaded()
    views = tuple((label, f"{path}?order={name}") for name, (label, _) in ORDERS.items())
    label, meaning = ORDERS[query.order]
    this_path = f"{path}?order={query.order}" + (f"&period={query.period}" if query.order == "top" else "")
    return {
        "title": title,
        "rows": article_html.article_rows(found.articles, site.clock.now_ms(), articles.open_since()),
        "tabs": tabs("Order", views, label),
        "meaning": meaning,
        "is_disputed": query.order == "controversial",
        "periods": [(label, f"{path}?order=top&period={name}", name == query.period) for name, label in PERIODS.items()]
        if query.order == "top"
        else [],
        "groups": sidebar.groups_html(title),
        "more": next_page_link(this_path, found.pagination, "More"),
    }


@page.get("/articles/new", access=USER)
async def new_article(request: Request, site: PageResponses) -> Response[str]:
    """Show the form to post an article."""
    visitor = await site.visitors.from_request(request)
    visitor.require_user()
    return _form_page(site, request, visitor)


def _form_page(
    site: PageResponses, request: Request, visitor: Visitor, *, status: int = 200, **context: Any
) -> Response[str]:
    values = {"title": "", "link": "", "groups": "", "problem": "", "field": "", "existing_id": None, **context}
    return site.page(request, visitor, "article-new.html", section="Articles", status=status, **values)


@page.post("/articles", access=USER)
async def post_article(request: Request, body: bytes, site: PageResponses, articles: Articles) -> Response[str]:
    """Post an article with its author's vote."""
    visitor = await site.visitors.from_request(request)
    fields = forms.parse_form(body)
    values = {name: fields.get(name, "") for name in ("title", "link", "groups")}
    groups = values["groups"].replace(",", " ").lower().split()
    try:
        new = forms.convert_fields({**values, "groups": groups}, NewArticle)
        created = await articles.post(visitor.require_user(), new, site.idempotency_key(request, body))
    except (Invalid, Conflict) as error:
        field, existing_id = error.extra.get("field", ""), error.extra.get("id")
        problem = {"problem": error.detail, "field": field, "existing_id": existing_id}
        return _form_page(site, request, visitor, status=error.status, **problem, **values)
    return site.form_response(request, visitor, b"", f"/app/articles/{created.id}")


@page.get("/articles/{id}", access=PUBLIC)
async def article(
    request: Request,
    site: PageResponses,
    id: ArticleId,
    articles: Articles,
    comments: ArticleComments,
    cursor: str | None = None,
    thread: ArticleCommentId | None = None,
) -> Response[str]:
    """Show an article with its comments, or one comment with its replies (`thread`), oldest first."""
    visitor = await site.visitors.from_request(request)
    found = await articles.read(visitor.actor, id)
    now, level = site.clock.now_ms(), thread or TOP_LEVEL
    parent = await comments.get(visitor.actor, thread) if thread else None
    shown = await comments.page(visitor.actor, id, Page(cursor=cursor), level)
    fitting = fitting_count([comment.content for comment in shown.items], MAX_TEXT_BYTES * 4 // 5)
    if fitting < len(shown.items):
        shown = await comments.page(visitor.actor, id, Page(limit=fitting, cursor=cursor), level)
    context: dict[str, Any] = {
        "article": found,
        "author": found.author.removeprefix("user:").strip(),
        "votes": article_html.vote_buttons(found, articles.open_since()),
        "comments_path": f"/app/articles/{id}/comments",
        "is_first_page": cursor is None,
        "parent": parent,
        "parent_row": article_html.comment_row(parent, found, visitor, now) if parent else "",
        "rows": article_html.comment_rows(shown.items, found, visitor, now),
        "more": next_page_link(
            article_html.thread_path(id, thread), shown.pagination, f"More {'replies' if thread else 'comments'}"
        ),
    }
    return await site.mentions.complete(site.page(request, visitor, "article.html", section="Articles", **context))


@page.post("/articles/{id}/comments", access=USER)
async def comment(
    request: Request, body: bytes, site: PageResponses, id: ArticleId, articles: Articles, comments: ArticleComments
) -> Response[str]:
    """Comment on an article, or reply to a comment."""
    visitor = await site.visitors.from_request(request)
    new = forms.read_form(body, NewArticleComment)
    created = await comments.create(visitor.require_user(), id, new, site.idempotency_key(request, body))
    found = await articles.read(visitor.actor, id)
    path = f"{article_html.thread_path(id, new.reply_to)}#comment-{created.id}"
    context: dict[str, Any] = {
        "count": found.commentsCount,
        "parent": {"id": new.reply_to} if new.reply_to else None,
        "comment": article_html.comment_row(created, found, visitor, site.clock.now_ms()),
        "comments_path": f"/app/articles/{id}/comments",
        "actions": "",
    }
    response = site.form_response(
        request, visitor, body, path, "comment-created.html", message="Comment added.", **context
    )
    return await site.mentions.complete(response)


@page.get("/articles/{id}/comments/{comment}/delete", access=ADMIN)
async def confirm_comment_deletion(
    request: Request, site: PageResponses, id: ArticleId, comment: ArticleCommentId, comments: ArticleComments
) -> Response[str]:
    """Show an admin what a deletion does, before it is done."""
    return await _comment_forms(site, request, comments, id, comment).ask()


@page.post("/articles/{id}/comments/{comment}/delete", access=USER, logged=True)
async def delete_comment(
    request: Request,
    body: bytes,
    site: PageResponses,
    id: ArticleId,
    comment: ArticleCommentId,
    comments: ArticleComments,
) -> Response[str]:
    """Delete a comment (its author, the article's author or an admin)."""
    return await _comment_forms(site, request, comments, id, comment).delete(body)


@page.get("/articles/{id}/comments/{comment}/edit", access=USER)
async def edit_comment_page(
    request: Request, site: PageResponses, id: ArticleId, comment: ArticleCommentId, comments: ArticleComments
) -> Response[str]:
    """Show the form to edit a comment."""
    return await _comment_forms(site, request, comments, id, comment).show()


def _comment_forms(
    site: PageResponses, request: Request, comments: ArticleComments, article: int, comment: str
) -> CommentForms:
    return CommentForms(site, request, comments, comment, f"/app/articles/{article}", "Articles")


@page.post("/articles/{id}/comments/{comment}/edit", access=USER)
async def edit_comment(
    request: Request,
    body: bytes,
    site: PageResponses,
    id: ArticleId,
    comment: ArticleCommentId,
    comments: ArticleComments,
) -> Response[str]:
    """Edit a comment (its author)."""
    form = _comment_forms(site, request, comments, id, comment)
    return await form.save(body, ArticleCommentEdit, partial(article_html.thread_path, id))


@page.post("/articles/{id}/vote", access=USER)
async def vote(request: Request, body: bytes, site: PageResponses, id: ArticleId, articles: Articles) -> Response[str]:
    """Vote up or down, change the vote, or remove it."""
    visitor = await site.visitors.from_request(request)
    await articles.vote(visitor.require_user(), id, _direction(body))
    votes = article_html.vote_buttons(await articles.read(visitor.actor, id), articles.open_since())
    path = f"/app/articles/{id}#article-{id}"
    return site.form_response(request, visitor, body, path, "fragment.html", fragment=votes)


@page.get("/articles/{id}/delete", access=ADMIN)
async def confirm_deletion(
    request: Request, site: PageResponses, id: ArticleId, articles: Articles, back: str = ""
) -> Response[str]:
    """Show an admin what a deletion does, before it is done. `back` is the page that the admin comes from."""
    visitor = await site.visitors.from_request(request)
    found = await articles.read(visitor.actor, id)
    title = article_title(found.title, id)
    return await confirmation(
        request,
        site,
        "Articles",
        title="Delete the article?",
        effects=[
            f"“{title}” of {found.author.removeprefix('user:')} is deleted, with its votes and comments.",
            "This cannot be undone.",
        ],
        button="Delete the article",
        back=local_path(back, f"/app/articles/{id}"),
    )


@page.post("/articles/{id}/delete", access=USER, logged=True)
async def delete(
    request: Request, body: bytes, site: PageResponses, id: ArticleId, articles: Articles, back: str = ""
) -> Response[str]:
    """Delete an article (its author or an admin)."""
    visitor = await site.visitors.from_request(request)
    with suppress(NotFound):  # deleted by an earlier click
        await articles.delete(visitor.require_user(), id)
    path = "/app/operator/articles" if visitor.is_admin else "/app/articles?order=time"
    return site.form_response(request, visitor, b"", local_path(back, path))


def _direction(body: bytes) -> Direction | None:
    """The direction of a vote; None removes the vote."""
    if forms.parse_form(body).get("direction") == "none":
        return None
    return forms.read_form(body, NewVote).direction
