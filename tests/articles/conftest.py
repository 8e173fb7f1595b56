"""Fixtures: articles on one server and on a cluster, and users."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest

from plaza.articles.atom import ArticleAtomFeeds
from plaza.articles.comments import ArticleComments
from plaza.articles.group_rankings import GroupRankings
from plaza.articles.keys import ARTICLES_LAST
from plaza.articles.library import LIBRARY
from plaza.articles.lists import ArticleLists
from plaza.articles.model import Article, NewArticle
from plaza.articles.routes import route
from plaza.articles.service import Articles
from plaza.core import paging
from plaza.core.auth import Actor, Auth
from plaza.core.clock import ManualClock
from plaza.core.functions import Functions
from plaza.core.http.app import make_app
from plaza.core.http.app_options import AppOptions
from plaza.core.idempotency import Idempotency
from plaza.core.keys import LIBRARIES
from plaza.core.paging import Snapshots
from plaza.core.roles import Role
from plaza.core.settings import Settings
from plaza.core.valkey import Valkey, scan_pages
from tests.http_servers import client_of

VOTING_DAYS = 7
SETTINGS = Settings(jwt_secret="s" * 32, api_key="k" * 32, rate_limits=False)
AUTH = Auth(SETTINGS)

Post = Callable[..., Awaitable[Article]]


def bearer(name: str, role: Role = "user") -> dict[str, str]:
    return {"authorization": f"Bearer {AUTH.issue(name, role)}"}


def user(name: str) -> Actor:
    return Actor(name, "user")


@pytest.fixture
def ana() -> Actor:
    return user("ana")


@pytest.fixture
def ben() -> Actor:
    return user("ben")


@pytest.fixture
def admin() -> Actor:
    return Actor("root", "admin")


@pytest.fixture
async def functions(valkey: Valkey) -> AsyncIterator[Functions]:
    functions = Functions(valkey, [LIBRARY, paging.LIBRARY])
    await functions.load()
    yield functions
    await functions.outbox.drain()


@pytest.fixture
def articles(functions: Functions, clock: ManualClock) -> Articles:
    return Articles(functions, clock, VOTING_DAYS)


@pytest.fixture
def lists(articles: Articles, clock: ManualClock) -> ArticleLists:
    return ArticleLists(articles, GroupRankings(articles.functions), Snapshots(articles.valkey, clock))


@pytest.fixture
def post(articles: Articles, ana: Actor) -> Post:
    """Posts an article with a unique link."""
    numbers = itertools.count()

    async def post(author: Actor = ana, *groups: str, title: str = "A title") -> Article:
        number = next(numbers)
        new = NewArticle(title, f"https://example.com/{number}", list(groups))
        return await articles.post(author, new, f"test-{number}")

    return post


@pytest.fixture
async def http(articles: Articles, lists: ArticleLists, valkey: Valkey) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the real application, whose clock the tests set."""
    services: dict[type, Any] = {
        Articles: articles,
        ArticleLists: lists,
        ArticleComments: ArticleComments(articles, None),
    }
    services[ArticleAtomFeeds] = ArticleAtomFeeds(lists, Settings(public_url="https://plaza.example"))
    app = make_app([route], services, auth=AUTH, settings=SETTINGS, options=AppOptions(idempotency=Idempotency(valkey)))
    async with client_of(app) as client:
        yield client


async def remaining_keys(valkey: Valkey) -> set[str]:
    """All keys except the id counter, which never decreases, the libraries and the events."""
    found: set[str] = set()
    for node in valkey.primaries():
        async for names in scan_pages(node, "SCAN"):
            found.update(name for name in names if not name.startswith(("events:", "published:")))
    return found - {ARTICLES_LAST(), LIBRARIES()}
