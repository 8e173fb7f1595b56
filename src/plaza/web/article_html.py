"""Articles as HTML, from cached fragments (`fragment_cache.py`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from markupsafe import Markup

from plaza.articles.model import Article, ArticleComment
from plaza.web import comment_html
from plaza.web.fragment_cache import cached_fragment
from plaza.web.rendering import fragment, render
from plaza.web.text_html import format_age
from plaza.web.visitors import Visitor

# A longer link is only on the article's own page. This keeps a list of 25 articles below 100 kB.
MAX_LINK_CHARACTERS: Final = 200


def article_rows(articles: Iterable[Article], now_ms: int, open_since: float) -> bytes:
    """The articles of a list. Voting is closed on those posted before `open_since`."""
    return b"".join([_row(article, now_ms, article.time >= open_since) for article in articles])


def vote_buttons(article: Article, open_since: float) -> Markup:
    """The votes of an article and the buttons to vote."""
    return fragment("votes.html", article=article, open=article.time >= open_since)


def comment_rows(comments: Iterable[ArticleComment], article: Article, visitor: Visitor, now_ms: int) -> bytes:
    """The comments on an article."""
    return b"".join([_comment_row(comment, article, visitor, now_ms) for comment in comments])


def comment_row(comment: ArticleComment, article: Article, visitor: Visitor, now_ms: int) -> Markup:
    """One comment on an article."""
    return Markup(_comment_row(comment, article, visitor, now_ms).decode())  # noqa: S704


def _comment_row(comment: ArticleComment, article: Article, visitor: Visitor, now_ms: int) -> bytes:
    return comment_html.row(
        comment,
        visitor,
        now_ms,
        edited=comment.edited_at is not None,
        can_delete=visitor.is_admin or visitor.name in (comment.username, article.author.removeprefix("user:")),
        can_edit=visitor.name == comment.username,
        thread_path=thread_path(article.id, comment.id),
        path=f"/app/articles/{article.id}/comments/{comment.id}",
    )


def thread_path(article: int, comment: str | None) -> str:
    """The page of a comment and its replies; without a comment, of the article."""
    return f"/app/articles/{article}?thread={comment}" if comment else f"/app/articles/{article}"


def _row(article: Article, now_ms: int, is_open: bool) -> bytes:
    return _cached_row[
        article.id,
        article.title,
        article.link,
        article.author,
        article.time,
        article.votes,
        article.vote,
        format_age(article.time * 1000, now_ms),
        is_open,
        tuple(article.groups),
        article.commentsCount,
    ]


@cached_fragment()
def _cached_row(
    id: int,
    title: str,
    link: str,
    author: str,
    time: float,
    votes: int,
    vote: str | None,
    when: str,
    is_open: bool,
    groups: tuple[str, ...],
    comments: int,
) -> bytes:
    article = {"id": id, "title": title, "link": link, "author": author, "time": time, "groups": groups}
    article |= {"votes": votes, "vote": vote, "commentsCount": comments}
    return render(
        "article-row.html", article=article, when=when, open=is_open, max_link_characters=MAX_LINK_CHARACTERS
    ).encode()
