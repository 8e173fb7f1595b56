"""The pages for people in a real browser: what one does there happens in place and is still so after a reload; it also
works without scripts; and everybody can use it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.community import PASSWORD, Community, Reader, community

# CI keeps what is here.
ARTEFACTS = Path(__file__).parents[2] / "artefacts" / "screenshots"
AXE = (files("axe_playwright_python") / "axe.min.js").read_text()
OPEN_DRAWERS = "for (const drawer of document.querySelectorAll('details')) drawer.open = true"


@pytest.fixture(scope="module")
def plaza(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Community]:
    with community(tmp_path_factory.mktemp("pages") / "var") as plaza:
        yield plaza


class Readers:
    def __init__(self, browser: Browser, url: str) -> None:
        self._browser, self._url = browser, url
        self.all: list[Reader] = []

    def __call__(self, **options: Any) -> Reader:
        self.all.append(Reader(self._browser, self._url, **options))
        return self.all[-1]


@pytest.fixture
def readers(browser: Browser, plaza: Community) -> Iterator[Readers]:
    readers = Readers(browser, plaza.url)
    yield readers
    for reader in readers.all:
        reader.end()


def pressed(page: Page, name: str) -> Any:
    return page.get_by_role("button", name=name, pressed=True)


def test_a_newcomer_posts_likes_and_comments_and_all_is_there_after_a_reload(readers: Readers) -> None:
    page = readers().sign_up("nia")
    page.get_by_label("Your post").fill("Hello <b>everybody</b> #firsts")
    page.get_by_role("button", name="Post").click()
    card = page.locator("article").first
    expect(card).to_contain_text("Hello <b>everybody</b> #firsts")
    assert page.url.endswith("/app"), "in place"
    expect(page.get_by_label("Your post")).to_have_value("")
    card.get_by_role("button", name="Like, 0 so far").click()
    expect(card.get_by_role("button", name="Like, 1 so far")).to_have_attribute("aria-pressed", "true")
    card.get_by_role("button", name="Bookmark, 0 so far").press("Enter")
    expect(card.get_by_role("button", name="Bookmark, 1 so far")).to_be_focused()
    page.reload()
    expect(card.get_by_role("button", name="Like, 1 so far", pressed=True)).to_be_visible()
    card.get_by_role("link", name="Comments, 0").click()
    page.get_by_label("Your comment").fill("And to you, @nia")
    page.get_by_role("button", name="Comment", exact=True).click()
    expect(page.locator("h2#comments")).to_have_text("1 comment")
    page.reload()
    expect(page.locator(".comment")).to_contain_text("And to you, @nia")
    page.goto("/app/bookmarks")
    expect(page.locator("article")).to_have_count(1)
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("link", name="Sign in").first).to_be_visible()
    page.go_back()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()  # and not what nia has bookmarked


def test_a_button_that_is_pressed_twice_is_pressed_once_and_does_not_hold_up_others(
    readers: Readers, plaza: Community
) -> None:
    page = readers().sign_up("tim")
    held: list[Route] = []
    page.route("**/like", lambda route: held.append(route))
    likes = page.locator(".like")
    for press in (likes.nth(0).dblclick, likes.nth(1).click):
        with page.expect_request("**/like"):
            press()
    expect(page.locator("[data-busy]")).to_have_count(2)
    assert len({route.request.url for route in held}) == len(held) == 2
    for route in held:
        route.continue_()
    expect(page.locator('.like[aria-pressed="true"]')).to_have_count(2)
    empty = plaza.ask("POST", "/challenges", "jonas", title="Nap", category=3, is_public=True, duration=7)["id"]
    page.goto(f"/app/challenges/{empty}")
    expect(page.get_by_text("Nobody has told anything yet.")).to_be_visible()
    page.get_by_role("button", name="Take part").click()
    page.get_by_label("How is it going?").fill("Zzz.")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".tale")).to_have_text(re.compile("Zzz."))
    expect(page.get_by_text("Nobody has told anything yet.")).to_be_hidden()


def test_whom_one_follows_one_reads(readers: Readers) -> None:
    page = readers().sign_up("fay")
    page.goto("/app/people/jonas")
    page.get_by_role("button", name="Follow", exact=True).click()
    expect(page.get_by_role("button", name="Following")).to_be_visible()
    expect(page.locator("#said")).to_have_text("You follow jonas.")
    page.reload()
    expect(page.get_by_role("button", name="Following", pressed=True)).to_be_visible()
    page.get_by_role("link", name="Following", exact=True).click()
    expect(page.locator("article")).to_have_count(1)
    page.get_by_role("link", name="#garden").click()
    expect(page.get_by_role("heading", name="#garden")).to_be_visible()
    page.get_by_role("link", name="Best").click()
    expect(page.locator("article")).to_contain_text("The first frost")


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without"])
def test_one_keeps_people_away_and_changes_what_one_said(readers: Readers, plaza: Community, scripts: bool) -> None:
    post = plaza.ask("POST", "/posts", plaza.person(f"leo{scripts:d}"), content="What I siad")["id"]
    page = readers(java_script_enabled=scripts).sign_in(f"leo{scripts:d}")
    page.goto(f"/app/posts/{post}")
    page.get_by_text("More", exact=True).click()
    page.get_by_role("link", name="Edit this post").click()
    page.get_by_label("What it says").fill("What I said")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("article")).to_contain_text("What I said")
    page.goto("/app/people/jonas")
    page.get_by_text("More", exact=True).click()
    page.get_by_role("button", name="Mute").click()
    if not scripts:
        page.get_by_text("More", exact=True).click()
    expect(page.get_by_role("button", name="Muted", pressed=True)).to_be_visible()
    page.get_by_role("button", name="Block", exact=True).click()
    expect(page.get_by_role("heading", name="Blocked")).to_be_visible()
    page.get_by_role("link", name="Muted", exact=True).click()
    expect(page.get_by_text("Nobody.")).to_be_visible()  # whom one blocks need not be muted
    page.get_by_role("link", name="Blocked", exact=True).click()
    page.get_by_role("button", name="Blocked jonas", pressed=True).click()
    if scripts:
        expect(page.get_by_role("button", name="Block jonas", pressed=False)).to_be_focused()
        page.reload()
    expect(page.get_by_text("Nobody.")).to_be_visible()


def test_what_one_was_writing_is_there_again_after_signing_in(readers: Readers) -> None:
    reader = readers()
    page = reader.sign_in("mira")
    page.get_by_label("Your post").fill("Half a thought")
    reader.context.clear_cookies()
    page.get_by_role("button", name="Post", exact=True).click()
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_label("Name").fill("mira")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_label("Your post")).to_have_value("Half a thought")
    page.reload()
    expect(page.get_by_label("Your post")).to_have_value("")
    reader.complaints = [line for line in reader.complaints if "401" not in line]


def test_without_scripts_too_what_one_was_writing_is_there_again(readers: Readers) -> None:
    reader = readers(java_script_enabled=False)
    page = reader.sign_in("mira")
    page.get_by_label("Your post").fill("Half a thought\nand its other half")
    reader.context.clear_cookies()
    page.get_by_role("button", name="Post", exact=True).click()
    page.get_by_label("Name").fill("mira")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_label("Your text")).to_have_value("Half a thought\nand its other half")
    page.get_by_role("button", name="Send it again").click()
    expect(page.locator("article").first).to_contain_text("and its other half")
    reader.complaints = [line for line in reader.complaints if "403" not in line]


def test_a_vote_is_cast_switched_and_taken_back_in_place(readers: Readers, plaza: Community) -> None:
    page = readers().sign_up("vic")
    page.goto("/app/articles?order=time")
    row = page.locator(f"#article-{plaza.article}")
    for name, votes, on in (("Vote up", 2, True), ("Vote down", 0, True), ("Vote down", 1, False)):
        row.get_by_role("button", name=name).click()
        expect(row.locator("b")).to_have_text(f"Votes: {votes}")
        expect(row.get_by_role("button", name=name)).to_have_attribute("aria-pressed", str(on).lower())
    row.get_by_role("button", name="Vote up").click()
    expect(row.locator("b")).to_have_text("Votes: 2")
    for order in ("Top", "New", "Hot", "Best", "Disputed"):
        page.get_by_role("link", name=order, exact=True).click()
        expect(page.locator(".tabs [aria-current]")).to_have_text(order)
        expect(row.get_by_role("button", name="Vote up", pressed=True)).to_be_visible()
    page.get_by_role("link", name="cities").first.click()
    expect(page.locator(".article")).to_have_count(1)


def test_who_takes_part_gets_recommendations_that_say_why(readers: Readers, plaza: Community) -> None:
    page = readers().sign_up("rob")
    page.goto(f"/app/challenges/{plaza.challenge}")
    page.get_by_role("button", name="Take part").click()
    page.get_by_role("button", name="Note today").click()
    expect(page.get_by_role("button", name="Today counts")).to_be_disabled()
    page.get_by_label("How is it going?").fill("Done.")
    page.get_by_role("button", name="Tell").click()
    expect(page.locator(".tale").first).to_contain_text("Done.")
    page.reload()
    expect(page.get_by_text("1 of 21 days so far")).to_be_visible()
    page.goto("/app/challenges/for-you")
    found = page.locator(".tale", has_text="Rain, went anyway.")
    expect(found.locator(".reason")).to_contain_text("1 day in fitness")
    found.get_by_role("button", name="React").click()
    expect(found.get_by_role("button", name="React, 1 so far", pressed=True)).to_be_visible()
    page.reload()
    expect(found).to_have_count(0)


def test_an_audience_is_seen_to_grow_in_another_browser(readers: Readers) -> None:
    first = readers().sign_up("una")
    first.goto("/app/events/harvest")
    expect(first.locator("#watching")).to_have_text("1")
    second = readers().page
    second.goto("/app/events/harvest")
    expect(first.locator("#watching")).to_have_text("2")
    expect(second.locator("#watching")).to_have_text("2")
    second.goto("/app")
    expect(first.locator("#watching")).to_have_text("1")
    expect(first.locator("#most")).to_have_text("2")


def test_the_last_piece_is_sold_once(readers: Readers, plaza: Community) -> None:
    item = plaza.offer("The very last lamp", 1)
    guest, other = readers().page, readers().sign_up("liz")
    for page in (guest, other):
        page.goto(f"/app/shop/items/{item}")
        page.get_by_role("button", name="Put in the cart").click()
        page.get_by_role("link", name="See the cart (1)").click()
        expect(page.locator("table.cart")).to_contain_text("The very last lamp")
    guest.get_by_role("button", name="Order now").click()
    expect(guest.locator(".order")).to_contain_text("The very last lamp")
    readers.all[-1].complaints.clear()
    other.get_by_role("button", name="Order now").click()
    expect(other.get_by_role("alert")).to_be_visible()
    assert all("409" in line for line in readers.all[-1].complaints)
    readers.all[-1].complaints.clear()
    held: list[Route] = []
    other.route("**/cart/*", lambda route: held.append(route))
    other.get_by_label("How many of").fill("0")
    with other.expect_request("**/cart/*"):
        other.keyboard.press("Tab")
    expect(other.get_by_role("button", name="Order now")).to_be_disabled()  # which would order what is no longer meant
    held[0].continue_()
    expect(other.get_by_text("The cart is empty.")).to_be_visible()
    other.unroute_all()
    other.goto(other.url)
    expect(other.get_by_text("The cart is empty.")).to_be_visible()
    other.goto(f"/app/shop/items/{item}")
    expect(other.locator(".stock")).to_have_text("Sold out")


def test_everything_works_without_scripts(readers: Readers, plaza: Community) -> None:
    page = readers(java_script_enabled=False).sign_up("old")
    page.get_by_label("Your post").fill("By hand")
    page.get_by_role("button", name="Post").click()
    expect(page.locator("article").first).to_contain_text("By hand")
    page.locator("article").first.get_by_role("button", name="Like, 0 so far").click()
    expect(page.locator("article").first.get_by_role("button", name="Like, 1 so far", pressed=True)).to_be_visible()
    page.locator("article").first.get_by_role("link", name="Comments").click()
    page.get_by_label("Your comment").fill("Still by hand")
    page.get_by_role("button", name="Comment", exact=True).click()
    expect(page.locator(".comment")).to_contain_text("Still by hand")
    page.goto("/app/people/jonas")
    page.get_by_role("button", name="Follow", exact=True).click()
    expect(pressed(page, "Following")).to_be_visible()
    page.goto(f"/app/articles/{plaza.article}")
    page.get_by_role("button", name="Vote down").click()
    expect(pressed(page, "Vote down")).to_be_visible()
    page.goto(f"/app/challenges/{plaza.challenge}")
    page.get_by_role("button", name="Take part").click()
    page.get_by_role("button", name="Note today").click()
    expect(page.get_by_text("1 of 21 days so far")).to_be_visible()
    page.goto("/app/events/harvest")
    expect(page.get_by_text("you are not counted")).to_be_visible()
    page.goto(f"/app/shop/items/{plaza.offer('A plain lamp', 3)}")
    page.get_by_label("How many").fill("2")
    page.get_by_role("button", name="Put in the cart").click()
    page.get_by_label("How many of").fill("3")
    page.get_by_role("button", name="Change").click()
    page.get_by_role("button", name="Order now").click()
    expect(page.locator(".order")).to_contain_text("3 × 19.90")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("link", name="Sign in").first).to_be_visible()


def test_the_first_paint_of_explore_takes_three_requests(readers: Readers) -> None:
    reader = readers()
    answer = reader.page.goto("/app", wait_until="networkidle")
    assert answer is not None
    kinds = [re.sub(r".*/", "", url) for url in reader.requests if not url.startswith("data:")]
    assert kinds == ["app", "app.css", "app.js"]
    assert len(answer.body()) < 100_000


def test_a_keyboard_is_enough(readers: Readers) -> None:
    page = readers().sign_in("mira")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_label("Your post")).to_be_focused()
    page.keyboard.type("Without a mouse")
    page.keyboard.press("Control+Enter")
    expect(page.locator("article").first).to_contain_text("Without a mouse")
    like = page.locator("article").first.get_by_role("button", name=re.compile("^Like"))
    outline = "element => { element.focus(); return getComputedStyle(element).outlineStyle }"
    page.keyboard.press("Shift+Tab")
    assert like.evaluate(outline) == "solid", "one sees where one is"


def every_page(plaza: Community) -> dict[str, str]:
    return {
        "explore": "/app",
        "following": "/app/following",
        "bookmarks": "/app/bookmarks",
        "blocked": "/app/blocked",
        "blocked-person": "/app/people/nil",
        "hashtag": "/app/tags/garden",
        "hashtag-ranked": "/app/tags/garden/ranked",
        "post": f"/app/posts/{plaza.post}",
        "profile": "/app/people/evil",
        "followers": "/app/people/jonas/followers",
        "own-profile": "/app/profile",
        "account": "/app/account",
        "articles": "/app/articles",
        "group": "/app/groups/cities",
        "article": f"/app/articles/{plaza.article}",
        "new-article": "/app/articles/new",
        "challenges": "/app/challenges",
        "challenge": f"/app/challenges/{plaza.challenge}",
        "for-you": "/app/challenges/for-you",
        "new-challenge": "/app/challenges/new",
        "events": "/app/events",
        "event": "/app/events/harvest",
        "odd-event": "/app/events/odd",
        "shop": "/app/shop",
        "item": f"/app/shop/items/{plaza.item}",
        "cart": "/app/shop/cart",
        "orders": "/app/shop/orders",
        "sign-in": "/app/sign-in",
        "sign-up": "/app/sign-up",
        "missing": "/app/nowhere",
    }


def problems(page: Page, *rules: str) -> list[str]:
    """What axe finds: with no rules named, by all of WCAG 2.2 AA and its best practices."""
    options = {"runOnly": {"type": "rule", "values": rules}} if rules else {}
    found = page.evaluate("options => axe.run(document, {...options, resultTypes: ['violations']})", options)
    return [f"{v['id']}: {node['html'][:160]}" for v in found["violations"] for node in v["nodes"]]


def test_every_page_is_for_everybody_in_light_and_dark_wide_and_narrow(readers: Readers, plaza: Community) -> None:
    reader = readers(viewport={"width": 1440, "height": 900}, color_scheme="light", reduced_motion="reduce")
    page = reader.sign_in("mira")
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    plaza.person("nil", "Nil, whom nobody wants to meet")
    plaza.ask("POST", "/users/nil/block", "mira")
    own = plaza.ask("POST", "/posts", "mira", content="Mine")["id"]
    page.goto(f"/app/shop/items/{plaza.item}")
    page.get_by_role("button", name="Put in the cart").click()
    expect(page.get_by_role("link", name="See the cart (1)")).to_be_visible()
    found: dict[str, list[str]] = {}
    for name, path in {**every_page(plaza), "edit-post": f"/app/posts/{own}/edit"}.items():
        page.emulate_media(color_scheme="light")
        page.set_viewport_size({"width": 1440, "height": 900})
        page.goto(path)
        page.evaluate(AXE)
        page.evaluate(OPEN_DRAWERS)
        found[name] = problems(page)
        page.screenshot(path=ARTEFACTS / f"{name}-1440-light.jpeg", quality=80)
        page.emulate_media(color_scheme="dark")
        found[name] += problems(page, "color-contrast")
        page.set_viewport_size({"width": 380, "height": 800})
        wider = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        found[name] += [f"{wider} px too wide for a phone"] if wider else []
        found[name] += problems(page, "target-size")
        page.screenshot(path=ARTEFACTS / f"{name}-380-dark.jpeg", quality=80)
    reader.complaints = [line for line in reader.complaints if "404" not in line]  # the missing page is one
    assert {name: what for name, what in found.items() if what} == {}
