"""`/live.js` in a real browser with a real server: it sends heartbeats while its page is visible, and leaves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, Request, Route

from tests.processes import ServerProcess, serving
from tests.timeouts import TIME_LIMIT_MS, TIME_LIMIT_SECONDS

HIDE = """
    Object.defineProperty(document, 'visibilityState', { configurable: true, get: () => '%s' });
    document.dispatchEvent(new Event('visibilitychange'));
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("live") / "var") as server:
        yield server


COUNT_PENDING_REQUESTS = """
    const realFetch = window.fetch;
    window.pending = 0;
    window.fetch = (...args) => {
      window.pending += 1;
      return realFetch(...args).finally(() => { window.pending -= 1; });
    };
"""


class AudiencePage:
    """A page that includes the script, and the figures of its event."""

    def __init__(self, browser: Browser, server: ServerProcess, event: str) -> None:
        self.server = server
        self.event = event
        self.context = browser.new_context()
        self.context.set_default_timeout(TIME_LIMIT_MS)
        self.page = self.open()

    def open(self) -> Page:
        page = self.context.new_page()
        page.clock.install()
        page.add_init_script("document.addEventListener('plaza-live', () => { window.responded = true; })")
        page.add_init_script(COUNT_PENDING_REQUESTS)
        self.requests: list[Request] = []
        page.on("request", lambda request: self.requests.append(request))
        script = f'<script src="/live.js" data-event="{self.event}" data-session="{self.event}-s"></script>'
        page.route("**/watch", lambda route: route.fulfill(content_type="text/html", body=f"<h1>Live</h1>{script}"))
        return page

    def watch(self) -> None:
        self.page.goto(f"{self.server.url}/watch")

    def beats(self) -> int:
        return sum(request.url.endswith("/heartbeat") for request in self.requests)

    def figure(self, path: str, event: str | None = None) -> Any:
        key = (self.server.data_dir / "api-key").read_text().strip()
        url = f"{self.server.url}/analytics/events/{event or self.event}{path}"
        return httpx.get(url, headers={"x-api-key": key}, timeout=TIME_LIMIT_SECONDS).json()

    def active(self) -> int:
        return int(self.figure("/viewers/active-count")["count"])

    def has_response(self) -> bool:
        """Whether the page has the response to its heartbeat, and so knows when the next one is due."""
        return bool(self.page.evaluate("window.responded"))

    def has_no_pending_request(self) -> bool:
        """Whether the page has all responses. Before that, it has set no timer."""
        return bool(self.page.evaluate("window.pending === 0"))

    def until(self, condition: Callable[[], bool]) -> None:
        """Let the browser run until a condition is true."""
        deadline = time.monotonic() + TIME_LIMIT_SECONDS
        while not condition():
            assert time.monotonic() < deadline, [request.url for request in self.requests]
            self.page.wait_for_timeout(20)


@pytest.fixture
def audience(browser: Browser, server: ServerProcess, request: pytest.FixtureRequest) -> Iterator[AudiencePage]:
    audience = AudiencePage(browser, server, request.node.name[5:40])
    yield audience
    audience.context.close()


def test_a_page_is_a_viewer_until_it_is_closed(audience: AudiencePage) -> None:
    audience.watch()
    audience.until(lambda: audience.active() == audience.beats() == 1)
    assert [request.url.rsplit("/", 1)[1] for request in audience.requests[1:]] == [
        "live.js",
        "viewer-token",
        "heartbeat",
    ]
    assert audience.figure(f"/sessions/{audience.event}-s/viewers/active-count") == {"count": 1}
    audience.page.goto("about:blank")
    audience.until(lambda: audience.active() == 0)
    audience.watch()
    audience.until(lambda: audience.active() == 1)
    assert audience.figure("/viewers/total-attended-count") == {"count": 1}, "the same viewer came back"
    assert audience.figure("/viewers/total-login-count") == {"count": 2}


def test_closing_the_tab_is_leaving(audience: AudiencePage) -> None:
    audience.watch()
    audience.until(lambda: audience.active() == 1)
    audience.page.close()
    audience.page = audience.open()
    audience.until(lambda: audience.active() == 0)


# The number of tabs of this browser at the place.
TABS = """() => {
  const name = Object.keys(localStorage).find((name) => name.startsWith("plaza-watching"));
  return name ? Object.keys(JSON.parse(localStorage.getItem(name))).length : 0;
}"""


def test_of_two_tabs_only_the_last_one_to_close_leaves(audience: AudiencePage) -> None:
    audience.watch()
    audience.until(lambda: audience.active() == 1)
    first, audience.page = audience.page, audience.open()
    audience.watch()
    audience.until(lambda: first.evaluate(TABS) == 2)  # browsers share storage between tabs with a delay
    audience.until(audience.has_response)
    first.close()
    audience.page.clock.fast_forward(31_000)
    audience.until(lambda: audience.beats() == 2)
    assert (audience.active(), audience.figure("/viewers/total-login-count")) == (1, {"count": 1})
    audience.page.goto("about:blank")
    audience.until(lambda: audience.active() == 0)


def test_it_sends_heartbeats_only_while_the_page_is_visible(audience: AudiencePage) -> None:
    audience.watch()
    audience.until(audience.has_response)
    assert audience.active() == 1
    audience.page.clock.fast_forward(31_000)
    audience.until(lambda: audience.beats() == 2)
    audience.page.evaluate(HIDE % "hidden")
    audience.page.clock.fast_forward(120_000)
    audience.page.wait_for_timeout(100)
    assert audience.beats() == 2, "the page is hidden"
    audience.page.evaluate(HIDE % "visible")
    audience.page.clock.fast_forward(10)
    audience.until(lambda: audience.beats() == 3)


def test_it_backs_off_while_the_server_does_not_respond(audience: AudiencePage) -> None:
    failing = True

    def respond(route: Route) -> None:
        if failing:
            route.fulfill(status=503, headers={"retry-after": "1"})
        else:
            route.continue_()

    audience.page.route("**/heartbeat", respond)
    audience.watch()
    audience.until(lambda: audience.beats() == 1)
    for _ in range(60):
        audience.until(audience.has_no_pending_request)
        audience.page.clock.run_for(1_000)
    tries = audience.beats()
    assert 4 <= tries <= 9, "a minute of failures is a handful of attempts"
    failing = False
    for _ in range(70):
        audience.until(audience.has_no_pending_request)
        audience.page.clock.run_for(1_000)
    audience.until(lambda: audience.active() == 1)


def test_it_stops_after_an_error_that_a_retry_cannot_fix(audience: AudiencePage) -> None:
    audience.page.route("**/heartbeat", lambda route: route.fulfill(status=403, body="{}"))
    audience.watch()
    audience.until(lambda: audience.beats() == 1)
    audience.page.clock.run_for(600_000)
    audience.page.wait_for_timeout(100)
    assert audience.beats() == 1


def test_a_stored_token_that_is_not_valid_is_replaced(audience: AudiencePage) -> None:
    stored = '{"token": "eyJhbGciOiJIUzI1NiIsInR5cCI6InZpZXdlcitqd3QifQ.e30.x", "until": 99999999999999}'
    audience.page.add_init_script(f"localStorage.setItem('plaza-viewer', '{stored}')")
    audience.watch()
    audience.until(lambda: audience.beats() == 1)
    audience.page.clock.run_for(2_000)
    audience.until(lambda: audience.active() == 1)


def test_a_page_can_start_and_stop_it(audience: AudiencePage) -> None:
    audience.page.goto(f"{audience.server.url}/watch")
    audience.until(lambda: audience.active() == 1)
    start = "event => { window.stop2 = plazaLive.start({ event, location: 'other', groups: ['crew'] }) }"
    audience.page.evaluate(start, f"{audience.event}-2")
    other = f"/analytics/events/{audience.event}-2/heartbeat"
    audience.page.clock.run_for(10)
    audience.until(lambda: any(request.url.endswith(other) for request in audience.requests))
    audience.page.evaluate("stop2()")
    audience.until(lambda: any(request.url.endswith("-2/leave") for request in audience.requests))


def test_the_token_function_is_called_again_when_the_token_has_expired(audience: AudiencePage) -> None:
    audience.watch()
    audience.until(lambda: audience.active() == 1)
    refused: list[str] = []

    def respond(route: Route) -> None:
        if not refused:
            refused.append(route.request.headers["authorization"])
            route.fulfill(status=401, body="{}")
        else:
            route.continue_()

    audience.page.route("**/other/heartbeat", respond)
    audience.page.evaluate("""() => {
        const good = JSON.parse(localStorage.getItem("plaza-viewer")).token;
        const tokens = ["expired", good];
        plazaLive.start({ event: "other", token: async () => tokens.shift() });
    }""")
    audience.page.clock.run_for(10)
    audience.until(lambda: refused == ["Bearer expired"])
    audience.page.clock.run_for(2_000)
    audience.until(lambda: audience.figure("/viewers/active-count", event="other") == {"count": 1})


def test_stopping_before_the_token_arrives_sends_no_heartbeat(audience: AudiencePage) -> None:
    audience.watch()
    audience.until(lambda: audience.active() == 1)
    audience.page.evaluate("""() => {
        const stop = plazaLive.start({ event: "never", token: () => new Promise((done) => { window.give = done; }) });
        window.stopNever = stop;
    }""")
    audience.page.clock.run_for(10)
    audience.until(lambda: bool(audience.page.evaluate("!!window.give")))
    audience.page.evaluate("stopNever(); give('late')")
    audience.page.wait_for_timeout(100)
    assert not any("/never/" in request.url for request in audience.requests)


def test_a_faulty_report_of_a_player_costs_no_viewer(audience: AudiencePage) -> None:
    audience.watch()
    audience.until(lambda: audience.active() == 1)
    audience.page.evaluate("""() => {
        plazaLive.start({ event: "throws", quality: () => { throw new Error("no player"); } });
        plazaLive.start({ event: "invalid", quality: () => ({ start_ms: -1 }) });
    }""")
    audience.page.clock.run_for(10)
    audience.until(lambda: audience.figure("/viewers/active-count", event="throws") == {"count": 1})
    audience.until(audience.has_no_pending_request)
    audience.page.clock.run_for(2_000)
    audience.until(lambda: audience.figure("/viewers/active-count", event="invalid") == {"count": 1})


def test_the_script_is_small_and_has_no_dependency(server: ServerProcess) -> None:
    text = server.get("/live.js").text
    assert len(text) < 8_000
    assert "import " not in text
    assert "require(" not in text
