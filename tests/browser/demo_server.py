"""A server with the demo, its admin's window, and the page that asks before an action."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import Browser, Page, expect

from tests.browser.community import BrowserWindow
from tests.processes import ServerProcess, plaza, until

# A heartbeat of a new viewer for an undeclared event, so that it may have any session and group.
SEND_HEARTBEAT = """async ({groups}) => {
    const token = await (await fetch("/analytics/viewer-token", {method: "POST"})).json();
    await fetch("/analytics/events/from-the-test/heartbeat", {
      method: "POST", headers: {authorization: `Bearer ${token.token}`},
      body: JSON.stringify({location: "web", session_id: "stage", groups}),
    });
}"""


class DemoServer(NamedTuple):
    """A server with the demo."""

    url: str
    data_dir: Path

    @property
    def password(self) -> str:
        """The password of the demo's admin."""
        return (self.data_dir / "demo-password").read_text()

    def switch(self, state: str) -> None:
        assert plaza(self.data_dir, "demo", "--switch", state, PLAZA_DEMO="auto").returncode == 0


@contextmanager
def running_demo(data_dir: Path) -> Iterator[DemoServer]:
    """The first start of a server, with its demo."""
    server = ServerProcess(data_dir, PLAZA_DEMO="auto").wait_for("Ctrl-C stops it.")
    try:
        until(lambda: "town-hall" in server.get("/app/events", accept="text/html").text)
        until(lambda: "demo_loaded" in server.errors.read_text())
        yield DemoServer(server.url, data_dir)
    finally:
        server.process.kill()
        server.process.wait()


def sign_in_as_robin(browser: Browser, demo: DemoServer, **options: Any) -> BrowserWindow:
    """Open a window and sign in as the demo's admin."""
    window = BrowserWindow(browser, demo.url, **options)
    window.page.goto("/app/sign-in")
    expect(window.page.get_by_role("button", name="Mira")).to_be_visible()
    window.page.get_by_label("Username").fill("robin")
    window.page.get_by_label("Password").fill(demo.password)
    window.page.get_by_role("button", name="Sign in").click()
    window.page.wait_for_url(f"{demo.url}/app")
    return window


def confirm(page: Page, asked: str | re.Pattern[str], button: str | re.Pattern[str], clicks: int = 1) -> None:
    """Answer the page that asks before an action."""
    expect(page.get_by_role("heading", name=asked)).to_be_visible()
    assert page.locator(".effects li").count() >= 1, "it says what it will do"
    page.get_by_role("button", name=button).click(click_count=clicks)
