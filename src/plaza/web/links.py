"""Articles as HTML, in pieces that are kept, as `posts.py` has it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from markupsafe import Markup

from plaza.articles.model import Article
from plaza.web.rendering import render
from plaza.web.text import ago

KEPT: Final = 4_000
# A longer one is on the article's own page: twenty-five of them stay below 100 kB whatever they are.
LONGEST_LINK: Final = 200


def rows(articles: Iterable[Article], now_ms: int) -> bytes:
    """The articles of a page."""
    return b"".join([_row(article, now_ms) for article in articles])


def votes(article: Article) -> Markup:
    """The votes of an article, and the arrows."""
    return Markup(_votes_of(article).decode())  # noqa: S704


def _row(article: Article, now_ms: int) -> bytes:
    """Two templates, one after the other, which have escaped what people wrote."""
    when = ago(article.time * 1000, now_ms)
    own = article.id, article.title, article.link, article.author, article.time, tuple(article.groups), when
    return b'<li class="article" id="article-%d">%b%b' % (article.id, _votes_of(article), _about(*own))


def _votes_of(article: Article) -> bytes:
    return _votes(article.id, article.title, article.votes, article.vote)


@lru_cache(KEPT)
def _votes(id: int, title: str, count: int, vote: str | None) -> bytes:
    return render("votes.html", article={"id": id, "title": title, "votes": count, "vote": vote}).encode()


@lru_cache(KEPT)
def _about(id: int, title: str, link: str, author: str, time: float, groups: tuple[str, ...], when: str) -> bytes:
    article = {"id": id, "title": title, "link": link, "author": author, "time": time, "groups": groups}
    return render("article-row.html", article=article, when=when, longest_link=LONGEST_LINK).encode()
