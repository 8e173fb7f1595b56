"""The operator pages in a real browser, on a server with the demo: live figures, the key browser, an audit; also
without JavaScript, and checked for accessibility.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from plaza.demo.loaders.live import EVENT
from tests.browser.community import BrowserWindow
from tests.browser.test_pages import ARTEFACTS, AXE, FOCUS_AND_MOTION, OPEN_DETAILS, excess_widths, violations
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


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoServer]:
    """The first start of a server, with its demo."""
    data_dir = tmp_path_factory.mktemp("operator") / "var"
    server = ServerProcess(data_dir, PLAZA_DEMO="auto").wait_for("Ctrl-C stops it.")
    try:
        until(lambda: "town-hall" in server.get("/app/events", accept="text/html").text)
        until(lambda: "demo_loaded" in server.errors.read_text())
        yield DemoServer(server.url, data_dir)
    finally:
        server.process.kill()
        server.process.wait()


@pytest.fixture
def robin(browser: Browser, demo: DemoServer) -> Iterator[Page]:
    """The page of the demo's admin."""
    window = _sign_in_as_robin(browser, demo, viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    yield window.page
    window.close()


def _sign_in_as_robin(browser: Browser, demo: DemoServer, **options: Any) -> BrowserWindow:
    window = BrowserWindow(browser, demo.url, **options)
    window.page.goto("/app/sign-in")
    expect(window.page.get_by_role("button", name="Mira")).to_be_visible()
    window.page.get_by_label("Username").fill("robin")
    window.page.get_by_label("Password").fill(demo.password)
    window.page.get_by_role("button", name="Sign in").click()
    window.page.wait_for_url(f"{demo.url}/app")
    return window


def test_the_live_page_updates_by_itself(robin: Page) -> None:
    robin.get_by_role("link", name="Operations").click()
    robin.get_by_role("link", name="Live", exact=True).click()
    expect(robin.get_by_role("heading", level=1)).to_contain_text("what we build next")
    for heading in ("Sessions", "Countries", "Groups"):
        expect(robin.get_by_role("heading", name=heading, exact=True)).to_be_visible()
    expect(robin.locator("#f-state")).to_have_text("updating live")
    assert int(robin.locator("#f-now").inner_text()) > 5
    robin.evaluate(SEND_HEARTBEAT, {"groups": ["first"]})
    robin.goto("/app/operator/live?event=from-the-test")
    expect(robin.locator("#f-now")).to_have_text("1")
    robin.evaluate(SEND_HEARTBEAT, {"groups": ["testers"]})
    expect(robin.locator("#f-now")).to_have_text("2")
    expect(robin.locator('[data-shares="group"]')).to_contain_text("testers")
    expect(robin.locator('[data-shares="session"]')).to_contain_text("stage")
    assert robin.locator("#f-chart .chart-line").get_attribute("d")
    expect(robin.locator(".chart-area", has=robin.locator("#f-chart"))).to_have_attribute("data-max", re.compile(r"\d"))


def test_the_live_page_reconnects_after_an_error_and_shows_an_empty_audience(
    browser: Browser, demo: DemoServer
) -> None:
    window = _sign_in_as_robin(browser, demo)
    page, requests = window.page, list[str]()
    figures = {"viewerCount": 0, "maxConcurrent": 7, "totalAttended": 7, "totalLogin": 7, "sessions": {}}
    empty = json.dumps({**figures, "countByViewingCountry": {}, "countByUserGroup": {}})

    def unavailable_at_first(route: Route) -> None:
        requests.append(route.request.url)
        if len(requests) == 1:
            route.fulfill(status=503, headers={"retry-after": "1"})
        else:
            route.fulfill(content_type="text/event-stream", body=f"retry: 60000\ndata: {empty}\n\n")

    page.route("**/operator/live/stream*", unavailable_at_first)
    page.goto(f"/app/operator/live?event={EVENT}")
    expect(page.locator("#f-attended")).to_have_text("7")
    assert len(requests) == 2, "the browser alone would have given up"
    for part in ("session", "country", "group"):
        expect(page.locator(f'[data-shares="{part}"] tbody')).to_have_text("No viewers.")
    window.errors = [line for line in window.errors if "503" not in line]
    window.close()


def test_an_operator_finds_a_key_by_its_description(robin: Page) -> None:
    robin.goto("/app/operator/keys")
    robin.get_by_role("main").get_by_role("searchbox", name="Search").fill("users who follow this user")
    robin.keyboard.press("Enter")
    robin.get_by_role("link", name="user:<username>:followers", exact=True).click()
    expect(robin.get_by_text("the other side of")).to_be_visible()
    robin.get_by_role("link", name="user:mira:followers", exact=True).click()
    expect(robin.get_by_role("heading", level=1)).to_have_text("user:mira:followers")
    expect(robin.get_by_role("table")).to_contain_text("robin")


def test_an_operator_runs_an_audit_and_sees_its_result(robin: Page) -> None:
    robin.goto("/app/operator/health")
    expect(robin.locator("#h-state")).to_have_text("updating live")
    expect(robin.locator("#jobs-table")).to_contain_text("demo.simulate")
    robin.get_by_role("button", name="Run audit").click()
    expect(robin.locator("#audit")).to_contain_text("No findings.")
    expect(robin.get_by_role("button", name="Run audit")).to_be_visible()
    robin.reload()
    expect(robin.locator("#audit")).to_contain_text("No findings.")


def _confirm(page: Page, asked: str, button: str) -> None:
    """Answer the page that asks before an action."""
    expect(page.get_by_role("heading", name=asked)).to_be_visible()
    assert page.locator(".effects li").count() >= 2, "it says what it will do"
    page.get_by_role("button", name=button).click()


def test_an_operator_does_the_work_of_the_desk_and_finds_it_in_the_log(robin: Page) -> None:
    robin.goto("/app/operator/users")
    robin.get_by_label("Name begins with").fill("ol")
    robin.get_by_label("State").select_option("active")
    robin.get_by_role("main").get_by_role("button", name="Search").click()
    robin.get_by_role("main").get_by_role("link", name="ola").click()
    robin.get_by_label("New note").fill("Called by phone.")
    robin.get_by_role("button", name="Add note").click()
    expect(robin.get_by_role("main")).to_contain_text("Called by phone.")
    robin.get_by_role("link", name="Suspend…").click()
    _confirm(robin, "Suspend ola?", "Suspend the user")
    robin.get_by_role("button", name="Lift suspension").click()
    robin.locator(".links").get_by_role("link", name="Keys").click()
    expect(robin.get_by_role("link", name="user:ola:followers", exact=True)).to_be_visible()

    robin.goto("/app/operator/items")
    robin.get_by_text("Create an item").click()
    for label, value in (("Name", "Storm lantern"), ("Price", "31.00"), ("Stock", "3")):
        robin.get_by_label(label, exact=True).fill(value)
    robin.get_by_role("button", name="Create item").click()
    robin.get_by_label("Change by").fill("-1")
    robin.get_by_role("button", name="Change", exact=True).click()
    expect(robin.get_by_role("heading", name="Stock: 2")).to_be_visible()
    item = robin.url.partition("?")[0]
    robin.get_by_role("link", name="Open in the shop").click()
    robin.get_by_role("button", name="Add to cart").click()
    robin.get_by_role("link", name="View cart (1)").click()
    robin.get_by_role("link", name="Check out").click()
    robin.get_by_role("button", name="Place order for €31.00").click()
    expect(robin.get_by_role("heading", name="State")).to_be_visible()
    order = robin.url.rpartition("/")[2]
    robin.goto("/app/operator/orders")
    robin.get_by_label("Number").fill(order)
    robin.get_by_role("main").get_by_role("button", name="Search").click()
    expect(robin.get_by_role("heading", level=1)).to_contain_text(f"Order {order}")
    robin.get_by_role("button", name="Mark as paid").click()
    robin.get_by_role("link", name="Cancel order…").click()
    _confirm(robin, f"Cancel order {order}?", "Cancel the order")
    expect(robin.locator("h1 .badge")).to_have_text("cancelled")
    robin.goto(item)
    expect(robin.get_by_role("heading", name="Stock: 2")).to_be_visible()
    robin.get_by_role("link", name="Withdraw item…").click()
    _confirm(robin, "Withdraw Storm lantern?", "Withdraw the item")
    expect(robin.get_by_role("button", name="Sell it again")).to_be_visible()

    robin.goto("/app/operator/live")
    robin.get_by_text("Declare a new event").click()
    robin.locator("#new-title").fill("Lantern walk")
    robin.locator("#new-starts").fill("2099-12-01T18:00")
    robin.get_by_role("button", name="Declare event").click()
    expect(robin.get_by_role("heading", level=1)).to_have_text("Lantern walk")
    robin.goto("/app/events")
    robin.get_by_role("link", name="Lantern walk").click()
    expect(robin.get_by_text("It has not started yet.")).to_be_visible()

    robin.goto(_failing_webhook(robin))
    robin.get_by_role("link", name="Remove webhook…").click()
    _confirm(robin, "Remove the webhook?", "Remove the webhook")
    expect(robin.get_by_text("No webhooks yet.")).to_be_visible()
    robin.goto("/app/articles/1")
    robin.get_by_text("More", exact=True).click()
    robin.get_by_role("link", name="Delete article…").click()
    _confirm(robin, "Delete the article?", "Delete the article")
    expect(robin.get_by_role("heading", name="Articles")).to_be_visible()

    robin.goto("/app/operator/growth")
    robin.get_by_text("Show as table: Orders").click()
    expect(robin.get_by_role("region", name="Orders by day, as a table")).to_be_visible()
    robin.goto("/app/operator/log?kind=admin")
    for done in ("suspension", "state=cancelled", "withdrawn=true", "title=Lantern walk", "webhook", "article"):
        expect(robin.locator("table.log")).to_contain_text(done)


def test_operator_pages_work_without_javascript(browser: Browser, demo: DemoServer) -> None:
    window = _sign_in_as_robin(browser, demo, java_script_enabled=False)
    page = window.page
    page.goto("/app/operator/live")
    assert int(page.locator("#f-now").inner_text()) > 5
    expect(page.locator('[data-shares="country"]')).to_contain_text("US")
    page.goto("/app/operator/health")
    page.get_by_role("button", name="Run audit").click()
    expect(page.get_by_role("heading", name="Audit")).to_be_visible()
    page.get_by_role("link", name="Turn off demo…").click()
    _confirm(page, "Turn off the demo?", "Turn off the demo")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()  # the demo's admin has no session any more
    demo.switch("on")
    window.close()


def _failing_webhook(robin: Page) -> str:
    """Create a webhook whose test fails, and return the path of its page."""
    robin.goto("/app/operator/webhooks")
    robin.get_by_label("URL").fill("https://127.0.0.1.invalid/" + "long" * 50)
    robin.get_by_role("button", name="Add webhook").click()
    expect(robin.get_by_role("heading", name="Secret")).to_be_visible()
    robin.get_by_role("button", name="Send test event").click()
    expect(robin.locator(".deliveries")).to_contain_text("The name of the endpoint cannot be resolved.")
    robin.get_by_role("link", name="Webhooks").first.click()
    path = robin.locator(".webhooks a").first.get_attribute("href")
    assert path is not None
    return path


def test_operator_pages_are_accessible_in_light_and_dark_wide_and_narrow(robin: Page) -> None:
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[str]] = {}
    pages = {
        "operator-live": "/app/operator/live",
        "operator-audience": f"/app/operator/live/audience?event={EVENT}",
        "operator-keys": "/app/operator/keys",
        "operator-family": "/app/operator/keys/user",
        "operator-secrets": "/app/operator/keys/auth_user",
        "operator-key": "/app/operator/keys/user/key?name=user:mira",
        "operator-webhooks": "/app/operator/webhooks",
        "operator-webhook": _failing_webhook(robin),
        "operator-health": "/app/operator/health",
        "operator-growth": "/app/operator/growth",
        "operator-users": "/app/operator/users",
        "operator-desk-user": "/app/operator/users/mira",
        "operator-items": "/app/operator/items",
        "operator-item": "/app/operator/items/1",
        "operator-orders": "/app/operator/orders",
        "operator-confirmation": "/app/operator/items/1/withdraw",
        "operator-user": "/app/people/mira",
    }
    for name, path in pages.items():
        robin.emulate_media(color_scheme="light", reduced_motion="reduce")
        robin.set_viewport_size({"width": 1440, "height": 900})
        robin.goto(path)
        robin.evaluate(AXE)
        robin.evaluate(OPEN_DETAILS)
        found[name] = violations(robin)
        robin.screenshot(path=ARTEFACTS / f"{name}-1440-light.png")
        robin.emulate_media(color_scheme="dark")
        found[name] += violations(robin, "color-contrast")
        found[name] += robin.evaluate(FOCUS_AND_MOTION)
        found[name] += excess_widths(robin)
        found[name] += violations(robin, "target-size")
        robin.screenshot(path=ARTEFACTS / f"{name}-380-dark.png")
    assert {name: violated for name, violated in found.items() if violated} == {}
