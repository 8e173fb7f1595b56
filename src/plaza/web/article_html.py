"""Articles as HTML, in pieces that are kept (`keeping.py`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from markupsafe import Markup

from plaza.articles.model import Article
from plaza.web.fragment_cache import kept
from plaza.web.rendering import fragment, render
from plaza.web.text_html import ago

# A longer one is on the article's own page: twenty-five of them stay below 100 kB whatever they are.
LONGEST_LINK: Final = 200


def rows(articles: Iterable[Article], now_ms: int, open_since: float) -> bytes:
    """The articles of a page. On those posted before `open_since` nobody votes any more."""
    return b"".join([_row(article, now_ms, article.time >= open_since) for article in articles])


def votes(article: Article, open_since: float) -> Markup:
    """The votes of an article, and the arrows."""
    return fragment("votes.html", article=article, open=article.time >= open_since)


def _row(article: Article, now_ms: int, is_open: bool) -> bytes:
    return _kept_row[
        article.id,
        article.title,
        article.link,
        article.author,
        article.time,
        article.votes,
        article.vote,
        ago(article.time * 1000, now_ms),
        is_open,
        tuple(article.groups),
    ]


@kept()
def _kept_row(
    id: int,
    title: str,
    link: str,
    author: str,
    time: float,
    count: int,
    vote: str | None,
    when: str,
    is_open: bool,
    groups: tuple[str, ...],
) -> bytes:
    own = {"id": id, "title": title, "link": link, "author": author, "time": time, "groups": groups}
    article = {**own, "votes": count, "vote": vote}
    return render("article-row.html", article=article, when=when, open=is_open, longest_link=LONGEST_LINK).encode()
