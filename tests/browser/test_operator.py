"""The operators' pages in a real browser, on a server that was filled with its demo: figures that move, keys in words,
an audit by a button; also without scripts, and for everybody.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from plaza.demo.loaders.live import EVENT
from tests.browser.community import Reader
from tests.browser.test_pages import ARTEFACTS, AXE, OPEN_DRAWERS, problems
from tests.processes import Serving, until


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A first start, with its community."""
    server = Serving(tmp_path_factory.mktemp("operator") / "var", PLAZA_DEMO="auto").wait_for("Ctrl-C stops it.")
    try:
        until(lambda: "town-hall" in server.get("/app/events", accept="text/html").text)
        until(lambda: "moved in" in server.errors.read_text())
        yield server.url
    finally:
        server.process.kill()
        server.process.wait()


@pytest.fixture
def robin(browser: Browser, demo: str) -> Iterator[Page]:
    """The demo's admin, who needs no password."""
    reader = _as_robin(browser, demo, viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    yield reader.page
    reader.end()


def _as_robin(browser: Browser, url: str, **options: Any) -> Reader:
    reader = Reader(browser, url, **options)
    reader.page.goto("/app/sign-in")
    reader.page.get_by_role("button", name="Robin Adler").click()
    reader.page.wait_for_url(f"{url}/app")
    return reader


def test_an_operator_sees_an_audience_move(robin: Page) -> None:
    robin.get_by_role("link", name="Operate").click()
    expect(robin.get_by_role("heading", level=1)).to_have_text("Town hall: what we build next")
    for heading in ("Sessions", "Countries", "Groups"):
        expect(robin.get_by_role("heading", name=heading, exact=True)).to_be_visible()
    expect(robin.locator("#f-state")).to_have_text("moving as it happens")
    now = int(robin.locator("#f-now").inner_text())
    assert now > 5
    robin.evaluate(
        """async (event) => {
            const token = await (await fetch("/analytics/viewer-token", {method: "POST"})).json();
            await fetch(`/analytics/events/${event}/heartbeat`, {
              method: "POST", headers: {authorization: `Bearer ${token.token}`},
              body: JSON.stringify({location: "web", session_id: "from-the-test", groups: ["testers"]}),
            });
        }""",
        EVENT,
    )
    expect(robin.locator('[data-shares="group"]')).to_contain_text("testers")
    expect(robin.locator('[data-shares="session"]')).to_contain_text("from-the-test")
    assert robin.locator("#f-line .over").get_attribute("d")
    expect(robin.locator(".plotted", has=robin.locator("#f-line"))).to_have_attribute("data-most", re.compile(r"\d"))


def test_a_page_moves_again_after_valkey_was_away_and_says_when_nobody_is_left(browser: Browser, demo: str) -> None:
    reader = _as_robin(browser, demo)
    page, answers = reader.page, list[str]()
    nobody = {"viewerCount": 0, "maxConcurrent": 7, "totalAttended": 7, "totalLogin": 7, "sessions": {}}
    empty = json.dumps({**nobody, "countByViewingCountry": {}, "countByUserGroup": {}})

    def away_at_first(route: Route) -> None:
        answers.append(route.request.url)
        if len(answers) == 1:
            route.fulfill(status=503, headers={"retry-after": "1"})
        else:
            route.fulfill(content_type="text/event-stream", body=f"retry: 60000\ndata: {empty}\n\n")

    page.route("**/operator/live/stream*", away_at_first)
    page.goto(f"/app/operator/live?event={EVENT}")
    expect(page.locator("#f-attended")).to_have_text("7")
    assert len(answers) == 2, "a browser alone would have given up"
    for part in ("session", "country", "group"):
        expect(page.locator(f'[data-shares="{part}"] tbody')).to_have_text("Nobody.")
    reader.complaints = [line for line in reader.complaints if "503" not in line]
    reader.end()


def test_an_operator_finds_a_key_by_what_it_means(robin: Page) -> None:
    robin.goto("/app/operator/keys")
    robin.get_by_role("searchbox", name="Find").fill("who follows this person")
    robin.keyboard.press("Enter")
    robin.get_by_role("link", name="user:<username>:followers", exact=True).click()
    expect(robin.get_by_text("the other side of")).to_be_visible()
    robin.get_by_role("link", name="user:mira:followers", exact=True).click()
    expect(robin.get_by_role("heading", level=1)).to_have_text("user:mira:followers")
    expect(robin.get_by_role("table")).to_contain_text("robin")


def test_an_operator_runs_an_audit_and_sees_what_it_found(robin: Page) -> None:
    robin.goto("/app/operator/health")
    expect(robin.locator("#h-state")).to_have_text("moving as it happens")
    expect(robin.locator("#jobs-table")).to_contain_text("demo.simulate")
    robin.get_by_role("button", name="Run an audit").click()
    expect(robin.locator("#audit")).to_contain_text("Everything is as it should be.")
    expect(robin.get_by_role("button", name="Run an audit")).to_be_visible()
    robin.reload()
    expect(robin.locator("#audit")).to_contain_text("Everything is as it should be.")


def test_it_works_without_scripts_too(browser: Browser, demo: str) -> None:
    reader = _as_robin(browser, demo, java_script_enabled=False)
    page = reader.page
    page.goto("/app/operator/live")
    assert int(page.locator("#f-now").inner_text()) > 5
    expect(page.locator('[data-shares="country"]')).to_contain_text("US")
    page.goto("/app/operator/health")
    page.get_by_role("button", name="Run an audit").click()
    expect(page.get_by_role("heading", name="Audit")).to_be_visible()
    page.get_by_role("button", name="Turn the demo off").click()
    page.get_by_role("button", name="Turn the demo on").click()
    expect(page.get_by_role("button", name="Turn the demo off")).to_be_visible()
    reader.end()


def test_operators_pages_are_for_everybody_in_light_and_dark_wide_and_narrow(robin: Page) -> None:
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[str]] = {}
    pages = {
        "operator-live": "/app/operator/live",
        "operator-keys": "/app/operator/keys",
        "operator-family": "/app/operator/keys/user",
        "operator-secrets": "/app/operator/keys/auth_user",
        "operator-key": "/app/operator/keys/user/key?name=user:mira",
        "operator-health": "/app/operator/health",
        "operator-person": "/app/people/mira",
    }
    for name, path in pages.items():
        robin.emulate_media(color_scheme="light")
        robin.set_viewport_size({"width": 1440, "height": 900})
        robin.goto(path)
        robin.evaluate(AXE)
        robin.evaluate(OPEN_DRAWERS)
        found[name] = problems(robin)
        robin.screenshot(path=ARTEFACTS / f"{name}-1440-light.png")
        robin.emulate_media(color_scheme="dark")
        found[name] += problems(robin, "color-contrast")
        robin.set_viewport_size({"width": 380, "height": 800})
        wider = robin.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        found[name] += [f"{wider} px too wide for a phone"] if wider else []
        found[name] += problems(robin, "target-size")
        robin.screenshot(path=ARTEFACTS / f"{name}-380-dark.png")
    assert {name: what for name, what in found.items() if what} == {}
