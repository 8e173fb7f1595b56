"""`/docs` in a real browser: its content, the form to try a request, and that it loads nothing from other hosts."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, expect

from plaza.core.http.access import PUBLIC
from plaza.core.http.app import App, make_app
from plaza.core.http.responses import EVENTS, ServerSentEvent
from plaza.core.http.routes import Routes
from tests.browser.conftest import PageVisit, ServedApp
from tests.core import sample_domain
from tests.core.sample_domain import AUTH, SETTINGS, Shelf, Thing, token

evil = Routes("evil", about="<img src=x onerror=alert(1)>")


@evil.get("/<b>", access=PUBLIC)
async def text() -> None:
    """<script>alert(1)</script> and `<b>`."""


@evil.get("/ticks", access=PUBLIC, media_type=EVENTS)
async def ticks() -> AsyncIterator[ServerSentEvent[Thing]]:
    """Two things, then the stream ends."""
    for number in (1, 2):
        yield ServerSentEvent(data=Thing(number, "Lamp", "ana"))


def application() -> App:
    return make_app([sample_domain.route, evil], {Shelf: Shelf()}, auth=AUTH, settings=SETTINGS)


@pytest.fixture(scope="module")
def site() -> Iterator[ServedApp]:
    with ServedApp(application) as site:
        yield site


WINDOWS: list[tuple[int, Literal["light", "dark"]]] = [(1440, "light"), (1440, "dark"), (380, "light"), (380, "dark")]


@pytest.fixture
def visit(browser: Browser, site: ServedApp, request: pytest.FixtureRequest) -> Iterator[PageVisit]:
    window: tuple[int, Literal["light", "dark"]] = getattr(request, "param", WINDOWS[0])
    width, scheme = window
    with browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme) as context:
        visit = PageVisit(context, site)
        yield visit
        assert visit.errors == [], "no script errors and no violations of the content policy"
        assert [url for url in visit.requests if not url.startswith((site.url, "about:"))] == [], "offline"


def open_operation(page: Page, name: str) -> None:
    expect(page.locator(f"#{name}[open] form.try")).to_be_visible()


def use_token(page: Page) -> None:
    page.click("#credentials-button")
    page.fill("#credential", token()["authorization"])
    page.press("#credential", "Enter")
    expect(page.locator("#credentials-label")).to_have_text("Token")


def test_every_route_is_listed_by_tag(visit: PageVisit) -> None:
    page = visit.go("/docs")
    expect(page.locator("section.tag")).to_have_count(5)  # things, evil, system; problems and types
    expect(page.locator("#tag-things details.operation")).to_have_count(len(sample_domain.route.routes))
    expect(page.locator("nav a[href='#createThing']")).to_contain_text("/things")
    expect(page.locator("#createThing .summary")).to_have_text("Put a thing on the shelf.")


def test_descriptions_are_never_markup(visit: PageVisit) -> None:
    page = visit.go("/docs#text")
    expect(page.locator("#tag-evil .about")).to_have_text("<img src=x onerror=alert(1)>")
    expect(page.locator("#text .summary")).to_have_text("<script>alert(1)</script> and <b>.")
    assert page.locator("#content img, #content script").count() == 0


def test_an_operation_shows_its_parameters_body_and_responses(visit: PageVisit) -> None:
    page = visit.go("/docs#listThings")
    open_operation(page, "listThings")
    limit = page.locator("#listThings .entry", has_text="limit").first
    expect(limit).to_contain_text("1 to 100, default 20")
    page = visit.go("/docs#createThing")
    body = page.locator("#createThing .reference")
    expect(body).to_contain_text("1 to 20 characters")
    expect(body.locator(".access")).to_have_text(re.compile(r"^Requires a user token"))
    page.locator("#createThing .inner summary", has_text="Part").click()
    expect(page.locator("#createThing .inner .name")).to_have_text("name")
    expect(page.locator("#createThing .errors .status")).to_have_text(
        ["400", "401", "403", "409", "413", "422", "429", "503"]
    )


def test_a_request_can_be_sent_with_a_token(visit: PageVisit) -> None:
    page = visit.go("/docs")
    use_token(page)
    page.locator("nav a[href='#createThing']").click()
    open_operation(page, "createThing")
    form = page.locator("#createThing form.try")
    expect(form.locator("textarea")).to_have_value('{\n  "title": "Desk lamp"\n}')
    form.locator("textarea").fill('{"title": "From the page"}')
    form.locator("button.primary").click()
    expect(form.locator(".status")).to_have_text("201 Created")
    expect(form.locator("pre.body")).to_contain_text('"author": "ana"')
    expect(form.locator(".timing")).to_contain_text("0 round trips to Valkey")
    form.locator(".as-curl summary").click()
    expect(form.locator(".curl")).to_contain_text('-H "Authorization: Bearer $TOKEN"')
    expect(form.locator(".curl")).to_contain_text('{"title": "From the page"}')
    assert token()["authorization"][20:60] not in page.content(), "the token is never on the page"


def test_parameters_are_sent_in_path_and_query(visit: PageVisit) -> None:
    page = visit.go("/docs#echo")
    form = page.locator("#echo form.try")
    form.locator("input[name=text]").fill("a/b ü?")
    form.locator("button.primary").click()
    expect(form.locator("pre.body")).to_contain_text('"text": "a/b ü?"')
    page = visit.go("/docs#listThings")
    form = page.locator("#listThings form.try")
    form.locator("input[name=tag]").fill("x, y")
    form.locator("select[name=colour]").select_option("red")
    form.locator("select[name=includeUser]").select_option("false")
    form.locator("input[name=limit]").fill("7")
    form.locator("button.primary").click()
    body = form.locator("pre.body")
    for text in ('"colour": "red"', '"limit": 7', '"includeUser": false', '"x",\n    "y"'):
        expect(body).to_contain_text(text)


def test_a_problem_response_is_shown(browser: Browser, site: ServedApp) -> None:
    # Browsers log every 4xx as an error, so this test does not check errors.
    with browser.new_context() as context:
        page = PageVisit(context, site).go("/docs#createThing")
        form = page.locator("#createThing form.try")
        form.locator("button.primary").click()
        expect(form.locator(".response .status")).to_have_text("401 Unauthorized")
        expect(form.locator("pre.body")).to_contain_text('"type": "/docs#problem-unauthenticated"')


def test_server_sent_events_are_shown_as_they_arrive(visit: PageVisit) -> None:
    page = visit.go("/docs#ticks")
    form = page.locator("#ticks form.try")
    form.locator("button.primary").click()
    expect(form.locator("pre.body")).to_contain_text('data: {"id":2,"title":"Lamp","author":"ana"}')
    expect(form.locator("button", has_text="Stop")).to_have_count(0)


def test_the_type_of_a_problem_links_to_its_entry(visit: PageVisit) -> None:
    page = visit.go("/docs#problem-too_fast")
    expect(page.locator(".problems .target")).to_contain_text("Too many requests")
    expect(page.locator(".problems .target")).to_be_in_viewport()


def test_the_search_filters_the_lists(visit: PageVisit) -> None:
    page = visit.go("/docs")
    expect(page.locator("#createThing")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("post like")
    expect(page.locator("#content details.operation[data-search]:visible")).to_have_count(1)
    expect(page.locator("nav a:visible .method")).to_have_count(1)
    page.fill("#search", "")
    expect(page.locator("#createThing")).to_be_visible()


def test_the_theme_can_be_changed_and_is_remembered(visit: PageVisit) -> None:
    page = visit.go("/docs")
    background = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(background)
    page.click("#theme")
    after = page.evaluate(background)
    assert before != after
    visit.go("/docs")
    expect(page.locator("#createThing")).to_be_visible()
    assert page.evaluate(background) == after


@pytest.mark.parametrize("visit", WINDOWS, indirect=True, ids=str)
def test_the_page_fits_its_window_with_enough_contrast(visit: PageVisit) -> None:
    page = visit.go("/docs")
    use_token(page)
    for name in ("createThing", "listThings"):
        page.evaluate(f"location.hash = '{name}'")
        open_operation(page, name)
        page.locator(f"#{name} button.primary").click()
        expect(page.locator(f"#{name} .response-head")).to_be_visible()
        page.locator(f"#{name} .as-curl summary").click()
        assert visit.overflow() == 0, f"{name} is wider than the window"
    assert low_contrast(page) == []
    narrow = page.viewport_size is not None and page.viewport_size["width"] < 500
    expect(page.locator("nav")).to_be_visible(visible=not narrow)
    if narrow:
        page.click("#menu")
        page.locator("nav a[href='#problems']").click()
        expect(page.locator("nav")).to_be_hidden()
        expect(page.locator("#problems h2")).to_be_in_viewport()


def low_contrast(page: Page, minimum: float = 4.5) -> list[str]:
    """Texts with less contrast to their background than WCAG 2 AA requires."""
    found: list[str] = page.evaluate(CONTRAST, minimum)
    return found


CONTRAST = """minimum => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => {
    const linear = (c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    const [x, y, z] = [r, g, b].map((c) => linear(c / 255));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const background = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !element.checkVisibility()) continue;
    const colour = parse(getComputedStyle(element).color);
    const [a, b] = [luminance(colour), luminance(background(element))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < minimum) found.push(`.${element.className}: ${element.textContent.slice(0, 30)}`);
  }
  return [...new Set(found)];
}"""


@pytest.mark.parametrize("path", ["/docs", "/docs/docs.js", "/docs/docs.css", "/docs/icon.svg"])
def test_files_are_cached_and_revalidated(browser: Browser, site: ServedApp, path: str) -> None:
    with browser.new_context() as context:
        first = context.request.get(site.url + path)
        etag = first.headers["etag"]
        assert first.headers["x-content-type-options"] == "nosniff"
        again = context.request.get(site.url + path, headers={"if-none-match": etag})
        assert (again.status, again.body()) == (304, b"")


@pytest.mark.parametrize("path", ["/docs/", "/docs/nothing.js", "/docs/..%2F__init__.py", "/docs/index.html"])
def test_only_its_own_files_are_served(browser: Browser, site: ServedApp, path: str) -> None:
    with browser.new_context() as context:
        assert context.request.get(site.url + path).status == 404


def test_the_content_policy_blocks_inline_scripts(browser: Browser, site: ServedApp) -> None:
    with browser.new_context() as context:
        policy = context.request.get(f"{site.url}/docs").headers["content-security-policy"]
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        page = PageVisit(context, site).go("/docs")
        page.evaluate(
            "const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s)"
        )
        assert page.evaluate("window.ran") is None
