"""Plaza with its pages, served by uvicorn on one real Valkey, and an HTTP client that stores cookies and submits forms
with their hidden fields, as browsers do.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest

from plaza.app import Plaza, running
from plaza.core.settings import Settings
from tests.databases import with_tables
from tests.http_servers import serving
from tests.servers import Server
from tests.timeouts import TIME_LIMIT_SECONDS


@pytest.fixture
async def plaza(server: Server, tmp_path: Path) -> AsyncIterator[Plaza]:
    settings = Settings(data_dir=with_tables(tmp_path), valkey_url=server.url, rate_limits=False)
    async with running(settings) as plaza:
        yield plaza


@pytest.fixture
async def url(plaza: Plaza) -> AsyncIterator[str]:
    async with serving(plaza.app) as url:
        yield url


@pytest.fixture
async def guest(url: str) -> AsyncIterator[PageClient]:
    async with PageClient(url) as client:
        yield client


@pytest.fixture
async def ana(url: str) -> AsyncIterator[PageClient]:
    async with PageClient(url) as client:
        await client.sign_up("ana")
        yield client


class PageClient(httpx.AsyncClient):
    """An HTTP client that behaves like a browser without JavaScript."""

    def __init__(self, url: str) -> None:
        super().__init__(base_url=url, headers={"accept": "text/html"}, timeout=TIME_LIMIT_SECONDS, verify=False)

    async def hidden_fields(self, page: str, action: str = "") -> dict[str, str]:
        """The hidden fields of the forms on a page; only of one form if the page has one that is sent to `action`."""
        text = (await self.get(page)).text
        text = text.partition(f'method="post" action="{action}"')[2].partition("</form>")[0] or text
        found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', text)
        return {
            name: unescape(value) for name, value in reversed(found)
        }  # the first form wins over the last, which all buttons share

    async def submit(self, path: str, *, page: str = "/app", **fields: str) -> httpx.Response:
        """Submit a form of a page with its hidden fields."""
        return await self.post(path, data={**await self.hidden_fields(page, path), **fields})

    async def sign_up(self, name: str) -> httpx.Response:
        response = await self.submit("/app/sign-up", page="/app/sign-up", username=name, password="correct horse")
        assert response.status_code == 303, response.text
        return response


class ParsedPage(HTMLParser):
    """The elements of a page with their attributes, and its texts, as a browser parses them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
