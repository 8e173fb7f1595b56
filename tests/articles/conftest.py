"""Articles on one server and on a cluster, with people to use them."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from plaza.articles.cuts import Cuts
from plaza.articles.domain import LIBRARY
from plaza.articles.lists import Lists
from plaza.articles.model import Article, NewArticle
from plaza.articles.service import Articles
from plaza.core import paging
from plaza.core.auth import Actor
from plaza.core.clock import SetClock
from plaza.core.functions import Functions
from plaza.core.paging import Snapshots
from plaza.core.wire import Valkey

VOTING_DAYS = 7

Post = Callable[..., Awaitable[Article]]


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
    await functions.effects.drain()


@pytest.fixture
def articles(functions: Functions, clock: SetClock) -> Articles:
    return Articles(functions, clock, VOTING_DAYS)


@pytest.fixture
def lists(articles: Articles, clock: SetClock) -> Lists:
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
