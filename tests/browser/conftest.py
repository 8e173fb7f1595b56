"""A real browser, and servers for it. These tests are not async: the browser's own loop would not share."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

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


class Site:
    """An application served by uvicorn, in a thread with a loop of its own."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._up = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self.url = ""

    async def _serve(self) -> None:
        self._loop, self._down = asyncio.get_running_loop(), asyncio.Event()
        app = self._make()
        async with serving(app) as self.url:
            self._up.set()
            await self._down.wait()
            app.drain()

    def __enter__(self) -> Site:
        self._thread.start()
        assert self._up.wait(TIME_LIMIT_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._down.set)
        self._thread.join(TIME_LIMIT_SECONDS)


class Visit:
    """A page in a window of some size, and everything it asked for and complained about."""

    def __init__(self, context: BrowserContext, site: Site) -> None:
        context.set_default_timeout(TIME_LIMIT_MS)
        self.page: Page = context.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on(
            "console", lambda line: self.complaints.append(line.text) if line.type in ("error", "warning") else None
        )
        self.site = site

    def go(self, path: str) -> Page:
        self.page.goto("about:blank")  # else a change of the fragment alone would load nothing
        self.page.goto(self.site.url + path)
        return self.page

    def overflow(self) -> int:
        """By how many pixels the page is wider than its window."""
        width: int = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        return width
