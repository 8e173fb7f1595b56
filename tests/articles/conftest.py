"""Articles on one server and on a cluster, with people to use them."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import pytest

from plaza.articles.group_rankings import Cuts
from plaza.articles.keys import ARTICLES_LAST
from plaza.articles.library import LIBRARY
from plaza.articles.lists import Lists
from plaza.articles.model import Article, NewArticle
from plaza.articles.routes import route
from plaza.articles.service import Articles
from plaza.core import paging
from plaza.core.auth import Actor, Auth
from plaza.core.clock import ManualClock
from plaza.core.functions import Functions
from plaza.core.http.app import make_app
from plaza.core.idempotency import Idempotency
from plaza.core.keys import LIBRARIES
from plaza.core.paging import Snapshots
from plaza.core.settings import Settings
from plaza.core.tokens import Role
from plaza.core.valkey import Valkey
from tests.http_servers import client_of

VOTING_DAYS = 7
SETTINGS = Settings(jwt_secret="s" * 32, api_key="k" * 32, rate_limits=False)
AUTH = Auth(SETTINGS)

Post = Callable[..., Awaitable[Article]]


def bearer(name: str, role: Role = "user") -> dict[str, str]:
    return {"authorization": f"Bearer {AUTH.issue(name, role)}"}


def person(name: str) -> Actor:
    return Actor(name, "user")


@pytest.fixture
def ana() -> Actor:
    return person("ana")


@pytest.fixture
def ben() -> Actor:
    return person("ben")


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
def lists(articles: Articles, clock: ManualClock) -> Lists:
    return Lists(articles, Cuts(articles.functions), Snapshots(articles.valkey, clock))


@pytest.fixture
def post(articles: Articles, ana: Actor) -> Post:
    """Posts an article with a link of its own."""
    numbers = itertools.count()

    async def post(author: Actor = ana, *groups: str, title: str = "A title") -> Article:
        number = next(numbers)
        new = NewArticle(title, f"https://example.com/{number}", list(groups))
        return await articles.post(author, new, f"test-{number}")

    return post


@pytest.fixture
async def http(articles: Articles, lists: Lists, valkey: Valkey) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the real application, on a clock that tests can set."""
    services = {Articles: articles, Lists: lists}
    app = make_app([route], services, auth=AUTH, settings=SETTINGS, idempotency=Idempotency(valkey))
    async with client_of(app) as client:
        yield client


async def traces(valkey: Valkey) -> set[str]:
    """Every key there is, but for the counter, which never falls, and the libraries."""
    found: set[str] = set()
    for node in valkey.primaries():
        cursor = "0"
        while True:
            cursor, names = await node.call("SCAN", cursor, "COUNT", 1000)
            found.update(names)
            if cursor == "0":
                break
    return found - {ARTICLES_LAST(), LIBRARIES()}
