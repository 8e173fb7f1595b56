"""Plaza with its pages, served by uvicorn on one real Valkey, and a browser without a screen: it keeps cookies and
sends forms as browsers do, with what the page itself put into them.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest

from plaza.app import Plaza, running
from plaza.core.settings import Settings
from tests.http_servers import serving
from tests.servers import Server
from tests.timeouts import TIME_LIMIT_SECONDS


@pytest.fixture
async def plaza(server: Server, tmp_path: Path) -> AsyncIterator[Plaza]:
    settings = Settings(data_dir=tmp_path, valkey_url=server.url, rate_limits=False)
    async with running(settings) as plaza:
        yield plaza


@pytest.fixture
async def url(plaza: Plaza) -> AsyncIterator[str]:
    async with serving(plaza.app) as url:
        yield url


@pytest.fixture
async def guest(url: str) -> AsyncIterator[Surfer]:
    async with Surfer(url) as surfer:
        yield surfer


@pytest.fixture
async def ana(url: str) -> AsyncIterator[Surfer]:
    async with Surfer(url) as surfer:
        await surfer.sign_up("ana")
        yield surfer


class Surfer(httpx.AsyncClient):
    """Somebody with a browser."""

    def __init__(self, url: str) -> None:
        super().__init__(base_url=url, headers={"accept": "text/html"}, timeout=TIME_LIMIT_SECONDS, verify=False)

    async def form(self, page: str) -> dict[str, str]:
        """The hidden fields of the forms of a page."""
        text = (await self.get(page)).text
        found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', text)
        return dict(reversed(found))  # the page's own form comes before the one that all buttons share

    async def fill(self, path: str, *, page: str = "/app", **fields: str) -> httpx.Response:
        """Fill in a form of a page and send it."""
        return await self.post(path, data={**await self.form(page), **fields})

    async def sign_up(self, name: str) -> httpx.Response:
        answer = await self.fill("/app/sign-up", page="/app/sign-up", username=name, password="correct horse")
        assert answer.status_code == 303, answer.text
        return answer


class Elements(HTMLParser):
    """Every element of a page, with its attributes: what a browser would make of it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.words.append(data)
