"""A real browser and servers for it. These tests are synchronous: playwright runs its own event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.browser.community import BrowserCommunity, Windows
from tests.http_servers import serving
from tests.timeouts import TIME_LIMIT_MS, TIME_LIMIT_SECONDS

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = ["--no-sandbox", "--headless=new", "--disable-gpu", "--disable-dev-shm-usage"]

expect.set_options(timeout=TIME_LIMIT_MS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS, timeout=TIME_LIMIT_MS)
        yield browser
        browser.close()


@pytest.fixture
def windows(browser: Browser, plaza: BrowserCommunity) -> Iterator[Windows]:
    """Opens windows for the module's `plaza`, and closes them and checks their errors."""
    windows = Windows(browser, plaza.url)
    yield windows
    for window in windows.all:
        window.close()


class ServedApp:
    """An application served by uvicorn, in a thread with its own event loop."""

    def __init__(self, create: Callable[[], Any]) -> None:
        self._create = create
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self.url = ""

    async def _serve(self) -> None:
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        app = self._create()
        async with serving(app) as self.url:
            self._started.set()
            await self._stopped.wait()
            app.drain()

    def __enter__(self) -> ServedApp:
        self._thread.start()
        assert self._started.wait(TIME_LIMIT_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(TIME_LIMIT_SECONDS)


class PageVisit:
    """A browser page that records its requests and errors."""

    def __init__(self, context: BrowserContext, site: ServedApp) -> None:
        context.set_default_timeout(TIME_LIMIT_MS)
        self.page: Page = context.new_page()
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on(
            "console", lambda line: self.errors.append(line.text) if line.type in ("error", "warning") else None
        )
        self.site = site

    def go(self, path: str) -> Page:
        self.page.goto("about:blank")  # to load the page even if only the fragment of the address changes
        self.page.goto(self.site.url + path)
        return self.page

    def overflow(self) -> int:
        """The number of pixels by which the page is wider than its window."""
        width: int = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        return width
