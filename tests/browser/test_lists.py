"""Lists of posts in a real browser: what the first view costs, what moves, older posts, and what can be undone."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Response, Route, expect

from tests.browser.community import BrowserCommunity, Windows, community
from tests.processes import until

MAX_EXPLORE_BYTES = 60_000

# What has moved so far, as browsers measure it.
LAYOUT_SHIFTS = """() => new Promise((resolve) => {
  const moved = [];
  new PerformanceObserver((list) => {
    for (const { sources } of list.getEntries()) moved.push(...sources.map(({ node }) => node?.outerHTML?.slice(0, 9)));
  }).observe({ type: "layout-shift", buffered: true });
  requestAnimationFrame(() => setTimeout(() => resolve(moved)));
})"""


@pytest.fixture(scope="module")
def plaza(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserCommunity]:
    with community(tmp_path_factory.mktemp("lists") / "var", currency="USD") as plaza:
        plaza.request("POST", "/posts", "mira", content="Seeds for all. #garden")
        for number in range(1, 46):
            plaza.request("POST", "/posts", "jonas", content=f"Note {number} from the allotment. #garden #notes")
        yield plaza


def test_the_first_view_of_explore_is_small_and_does_not_move(windows: Windows) -> None:
    window = windows(viewport={"width": 1440, "height": 900})
    loaded: list[Response] = []
    window.page.on("response", lambda response: loaded.append(response))
    window.page.goto("/app", wait_until="load")
    window.page.evaluate("document.fonts.ready")
    files = [response for response in loaded if "/stream" not in response.url]
    sizes = {response.url: len(transferred(response)) for response in files}
    assert sum(sizes.values()) < MAX_EXPLORE_BYTES, sizes
    fonts = [size for url, size in sizes.items() if url.endswith(".woff2")]
    assert len(fonts) == 2
    assert window.page.evaluate(LAYOUT_SHIFTS) == []
    window.page.set_viewport_size({"width": 1024, "height": 768})
    posts, sidebar = (window.page.locator(f".page > {each}").bounding_box() for each in ("main", ".sidebar"))
    assert posts is not None
    assert sidebar is not None
    assert posts["width"] > 1.5 * sidebar["width"], "posts are wider than what is beside them"
    window.page.set_viewport_size({"width": 380, "height": 800})
    for path in ("/app", "/app/sign-up"):  # with text of twice the size
        window.page.goto(path)
        window.page.evaluate("document.documentElement.style.fontSize = '200%'")
        assert window.page.evaluate("document.documentElement.scrollWidth") == 380, path


def test_an_event_does_not_move_when_its_script_starts(windows: Windows, plaza: BrowserCommunity) -> None:
    plaza.request("PUT", "/analytics/events/harvest", "admin", starts_at=2_000_000_000_000)
    page = windows(viewport={"width": 380, "height": 800}, timezone_id="Europe/Berlin").page
    page.goto("/app/events/harvest")
    expect(page.locator("#watching")).to_have_text("1")
    assert page.evaluate(LAYOUT_SHIFTS) == []
    page.goto("/app/events")
    expect(page.locator(".list time")).to_have_text(re.compile("CEST|GMT"))
    assert page.evaluate(LAYOUT_SHIFTS) == [], "nothing follows the time in its line"


def transferred(response: Response) -> bytes:
    """The body as it is sent: Plaza compresses style sheets and scripts, a proxy in front of it compresses pages."""
    body = response.body()
    return body if response.url.endswith(".woff2") else gzip.compress(body)


def test_older_posts_are_added_and_back_returns_to_the_same_place(windows: Windows) -> None:
    window = windows(viewport={"width": 1000, "height": 800})
    held: list[Route] = []
    window.page.route("**/lists.js", lambda route: held.append(route))
    page = window.sign_in("mira")
    expect(page.locator("#feed > article")).to_have_count(20)
    page.get_by_role("link", name="Older").click()
    until(lambda: page.evaluate("true") and held)
    held[0].continue_()  # a click before the script is there is not lost
    page.unroute("**/lists.js")
    expect(page.locator("#feed > article")).to_have_count(40)
    assert "cursor" not in page.url
    card = page.locator("#feed > article", has_text="Note 15 from")
    card.scroll_into_view_if_needed()
    place = page.evaluate("scrollY")
    card.locator(".text").click(position={"x": 5, "y": 5})  # anywhere on the card
    expect(page.get_by_role("heading", name="Comments")).to_be_visible()
    page.go_back()
    expect(page.locator("#feed > article")).to_have_count(40)
    page.wait_for_function("place => Math.abs(scrollY - place) < 50", arg=place)


def test_older_rows_are_added_to_the_table(windows: Windows, plaza: BrowserCommunity) -> None:
    plaza.register("olga")
    plaza.request("PATCH", "/users/olga/role", "admin", role="admin")
    for _ in range(50):
        plaza.request("PUT", "/analytics/events/odd", "admin", title="Odd")
    page = windows().sign_in("olga")
    page.goto("/app/operator/log?kind=admin")
    rows = page.locator("main tbody tr")
    expect(rows).to_have_count(50)
    page.get_by_role("link", name="Older").click()
    expect(page.locator("main tr", has_text="role=admin")).to_be_visible()
    expect(page.locator("main table")).to_have_count(1)
    assert rows.count() > 50


def test_tags_and_people_lead_a_new_user_on(windows: Windows, plaza: BrowserCommunity) -> None:
    page = windows(viewport={"width": 1440, "height": 900}).sign_up("nell")
    expect(page.locator(".sidebar")).to_contain_text("Used by the most people in the latest 100 posts.")
    page.locator(".sidebar").get_by_role("link", name="#garden").click()
    expect(page.get_by_role("heading", name="#garden")).to_be_visible()
    page.get_by_role("link", name="Following", exact=True).click()
    page.locator(".empty").get_by_role("link", name="Explore").click()
    page.goto("/app/people/mira")
    page.get_by_role("button", name="Follow", exact=True).click()
    page.get_by_role("link", name="Following", exact=True).click()
    expect(page.get_by_text("The people you follow also follow them.")).to_be_visible()
    page.get_by_role("link", name="Followed by 1 you follow").click()
    expect(page.get_by_role("heading", name="Jonas Lindqvist")).to_be_visible()

    # A new name is on one's own posts at once. A post that is new has no counts, and no zeros either.
    page.goto("/app")
    page.get_by_label("Your post").fill("My first bed")
    page.get_by_role("button", name="Post", exact=True).click()
    card = page.locator("#feed > article", has_text="My first bed")
    expect(card).to_contain_text("nell")
    assert "0" not in card.locator(".actions").inner_text()
    page.goto("/app/profile")
    page.get_by_label("Display name").fill("Nell Marsh")
    page.get_by_role("button", name="Save").click()
    page.wait_for_url("**/app/people/nell")
    assert card.locator(".byline a").inner_text() == "Nell Marsh"


def test_prices_are_in_the_currency_of_the_settings(windows: Windows, plaza: BrowserCommunity) -> None:
    page = windows().page
    page.goto(f"/app/shop/items/{plaza.item}")
    expect(page.locator(".price").first).to_have_text("$19.90")
    page.get_by_role("button", name="Add to cart").click()
    page.get_by_role("link", name="View cart (1)").click()
    page.get_by_role("link", name="Check out").click()
    page.get_by_role("button", name="Place order for $19.90").click()
    expect(page.locator("table.cart")).to_contain_text("1 × $19.90")


def test_a_deleted_post_and_an_unfollowed_user_come_back_with_undo(windows: Windows, plaza: BrowserCommunity) -> None:
    kept, gone = (plaza.request("POST", "/posts", "mira", content=f"Mine, {n}")["id"] for n in range(2))
    page = windows().sign_in("mira")
    page.goto(f"/app/posts/{kept}")
    page.get_by_text("More", exact=True).click()
    page.get_by_role("button", name="Delete post").click()
    expect(page.get_by_text("This post was deleted.")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("article")).to_contain_text("Mine, 0")
    page.goto(f"/app/posts/{gone}")
    page.get_by_text("More", exact=True).click()
    page.get_by_role("button", name="Delete post").click()
    page.goto("/app/people/jonas")  # leaving the page sends it
    until(lambda: plaza.api.get(f"/posts/{gone}").status_code == 404)
    assert plaza.api.get(f"/posts/{kept}").status_code == 200

    page.get_by_role("button", name="Following").click()
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("button", name="Following")).to_be_visible()
    page.reload()
    expect(page.get_by_role("button", name="Following")).to_be_visible()


def test_a_comment_deleted_by_keyboard_stays_hidden_until_undo(windows: Windows, plaza: BrowserCommunity) -> None:
    post = plaza.request("POST", "/posts", "jonas", content="Who has seeds?")["id"]
    plaza.request("POST", f"/posts/{post}/comments", "mira", content="I have some")
    page = windows().sign_in("mira")
    page.goto(f"/app/posts/{post}")
    own = page.locator(".comment", has_text="I have some")
    delete = own.get_by_role("button", name="Delete")
    delete.focus()
    for key in ("Shift+Tab", "Tab", "Enter"):
        page.keyboard.press(key)
    undo = page.get_by_role("button", name="Undo")
    expect(undo).to_be_focused()
    expect(own).to_be_hidden()
    plaza.request("POST", f"/posts/{post}/comments", "jonas", content="Wonderful")
    expect(page.locator(".comment", has_text="Wonderful")).to_be_visible()
    expect(own).to_be_hidden()
    page.keyboard.press("Enter")
    expect(own).to_be_visible()
    expect(delete).to_be_focused()
