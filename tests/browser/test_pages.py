"""The pages in a real browser: actions take effect in place and after a reload, everything works without JavaScript,
and every page is accessible.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator
from time import monotonic
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.accessibility import look_at
from tests.browser.community import EVIL, PASSWORD, BrowserCommunity, Windows, community
from tests.processes import until
from tests.timeouts import TIME_LIMIT_SECONDS

PIXEL = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")


@pytest.fixture(scope="module")
def plaza(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserCommunity]:
    with community(tmp_path_factory.mktemp("pages") / "var") as plaza:
        yield plaza


def pressed(page: Page, name: str) -> Any:
    return page.get_by_role("button", name=name, pressed=True)


def test_a_new_user_posts_likes_and_comments_and_a_reload_shows_it(windows: Windows) -> None:
    page = windows().sign_up("nia")
    page.get_by_label("Your post").fill("Hello <b>everybody</b> #firsts")
    page.get_by_role("button", name="Post").click()
    card = page.locator("article").first
    expect(card).to_contain_text("Hello <b>everybody</b> #firsts")
    assert page.url.endswith("/app"), "in place"
    expect(page.get_by_label("Your post")).to_have_value("")
    card.get_by_role("button", name="Like").click()
    expect(card.get_by_role("button", name="Like, 1 so far")).to_have_attribute("aria-pressed", "true")
    card.get_by_role("button", name="Bookmark").press("Enter")
    expect(card.get_by_role("button", name="Bookmark, 1 so far")).to_be_focused()
    page.reload()
    expect(card.get_by_role("button", name="Like, 1 so far", pressed=True)).to_be_visible()
    card.get_by_role("link", name="Comments").click()
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
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()  # not the bookmarks of nia


def test_a_double_click_counts_once_and_buttons_do_not_wait_for_each_other(
    windows: Windows, plaza: BrowserCommunity
) -> None:
    page = windows().sign_up("tim")
    pending: list[Route] = []
    page.route("**/like", lambda route: pending.append(route))
    likes = page.locator(".like")
    for press in (likes.nth(0).dblclick, likes.nth(1).click):
        with page.expect_request("**/like"):
            press()
    expect(page.locator("[data-busy]")).to_have_count(2)
    assert len({route.request.url for route in pending}) == len(pending) == 2
    for route in pending:
        route.continue_()
    expect(page.locator('.like[aria-pressed="true"]')).to_have_count(2)
    empty = plaza.request("POST", "/challenges", "jonas", title="Nap", category=3, is_public=True, duration=7)["id"]
    page.goto(f"/app/challenges/{empty}")
    expect(page.get_by_text("No posts yet.")).to_be_visible()
    page.get_by_role("button", name="Join").click()
    page.get_by_label("How is it going?").fill("Zzz.")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".challenge-post")).to_have_text(re.compile("Zzz."))
    expect(page.get_by_text("No posts yet.")).to_be_hidden()


def test_posts_of_followed_users_are_in_the_following_feed(windows: Windows) -> None:
    page = windows().sign_up("fay")
    page.goto("/app/people/jonas")
    page.get_by_role("button", name="Follow", exact=True).click()
    expect(page.get_by_role("button", name="Following")).to_be_visible()
    expect(page.locator("#status-message")).to_have_text("You follow jonas.")
    page.reload()
    expect(page.get_by_role("button", name="Following", pressed=True)).to_be_visible()
    page.get_by_role("link", name="Following", exact=True).click()
    expect(page.locator("article")).to_have_count(1)
    page.get_by_role("link", name="#garden").click()
    expect(page.get_by_role("heading", name="#garden")).to_be_visible()
    page.get_by_role("link", name="Best").click()
    expect(page.locator("article")).to_contain_text("The first frost")


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without"])
def test_users_edit_posts_and_mute_and_block_others(windows: Windows, plaza: BrowserCommunity, scripts: bool) -> None:
    post = plaza.request("POST", "/posts", plaza.register(f"leo{scripts:d}"), content="What I siad")["id"]
    page = windows(java_script_enabled=scripts).sign_in(f"leo{scripts:d}")
    page.goto(f"/app/posts/{post}")
    page.get_by_text("More", exact=True).click()
    page.get_by_role("link", name="Edit post").click()
    page.get_by_label("Text", exact=True).fill("What I said")
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
    expect(page.get_by_text("No muted users.")).to_be_visible()  # a block removes the mute
    page.get_by_role("link", name="Blocked", exact=True).click()
    page.get_by_role("button", name="Blocked jonas", pressed=True).click()
    if scripts:
        expect(page.get_by_role("button", name="Block jonas", pressed=False)).to_be_focused()
        page.reload()
    expect(page.get_by_text("No blocked users.")).to_be_visible()


def test_a_draft_is_restored_after_sign_in(windows: Windows) -> None:
    window = windows()
    page = window.sign_in("mira")
    page.get_by_label("Your post").fill("Half a thought")
    window.context.clear_cookies()
    page.get_by_role("button", name="Post", exact=True).click()
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_label("Username").fill("mira")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_label("Your post")).to_have_value("Half a thought")
    page.reload()
    expect(page.get_by_label("Your post")).to_have_value("")
    window.errors = [line for line in window.errors if "401" not in line]


def test_a_draft_is_restored_after_sign_in_without_javascript(windows: Windows) -> None:
    window = windows(java_script_enabled=False)
    page = window.sign_in("mira")
    page.get_by_label("Your post").fill("Half a thought\nand its other half")
    window.context.clear_cookies()
    page.get_by_role("button", name="Post", exact=True).click()
    page.get_by_label("Username").fill("mira")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_label("Text")).to_have_value("Half a thought\nand its other half")
    page.get_by_role("button", name="Send again").click()
    expect(page.locator("article").first).to_contain_text("and its other half")
    window.errors = [line for line in window.errors if "403" not in line]


def test_a_vote_is_cast_changed_and_removed_in_place(windows: Windows, plaza: BrowserCommunity) -> None:
    page = windows().sign_up("vic")
    page.goto("/app/articles?order=time")
    row = page.locator(f"#article-{plaza.article}")
    for name, votes, on in (("Vote up", 2, True), ("Vote down", 0, True), ("Vote down", 1, False)):
        row.get_by_role("button", name=name).click()
        expect(row.locator("b")).to_have_text(f"Votes: {votes}")
        expect(row.get_by_role("button", name=name)).to_have_attribute("aria-pressed", str(on).lower())
    plaza.request("PUT", f"/articles/{plaza.article}/vote", "mira", direction="down")  # now it is disputed
    row.get_by_role("button", name="Vote up").click()
    expect(row.locator("b")).to_have_text("Votes: 1")
    for order in ("Hot now", "New", "Trending", "Best", "Disputed"):
        page.get_by_role("link", name=order, exact=True).click()
        expect(page.locator(".tabs [aria-current]")).to_have_text(order)
        expect(row.get_by_role("button", name="Vote up", pressed=True)).to_be_visible()
    page.get_by_role("link", name="cities").first.click()
    expect(page.locator(".article")).to_have_count(1)


def test_members_get_recommendations_with_reasons(windows: Windows, plaza: BrowserCommunity) -> None:
    page = windows().sign_up("rob")
    page.goto(f"/app/challenges/{plaza.challenge}")
    page.get_by_role("button", name="Join").click()
    page.get_by_role("button", name="Track today").click()
    expect(page.get_by_role("button", name="Today is tracked")).to_be_disabled()
    page.get_by_label("How is it going?").fill("Done.")
    page.get_by_role("button", name="Post").click()
    expect(page.locator(".challenge-post").first).to_contain_text("Done.")
    page.reload()
    expect(page.get_by_text("1 of 21 days tracked")).to_be_visible()
    page.goto("/app/challenges/for-you")
    found = page.locator(".challenge-post", has_text="Rain, went anyway.")
    expect(found.locator(".reason")).to_contain_text("1 day in fitness")
    found.get_by_role("button", name="React").click()
    expect(found.get_by_role("button", name="React, 1 so far", pressed=True)).to_be_visible()
    page.reload()
    expect(found).to_have_count(0)


def test_the_viewer_count_is_updated_in_all_browsers(windows: Windows) -> None:
    first = windows().sign_up("una")
    first.goto("/app/events/harvest")
    expect(first.locator("#watching")).to_have_text("1")
    second = windows().page
    second.goto("/app/events/harvest")
    expect(first.locator("#watching")).to_have_text("2")
    expect(second.locator("#watching")).to_have_text("2")
    second.goto("/app")
    expect(first.locator("#watching")).to_have_text("1")
    expect(first.locator("#peak")).to_have_text("2")


def test_users_find_what_they_did_and_all_read_hashtags(windows: Windows, plaza: BrowserCommunity) -> None:
    page = windows().sign_up("olive")
    page.goto(f"/app/articles/{plaza.article}")
    page.get_by_role("button", name="Vote up").click()
    expect(pressed(page, "Vote up")).to_be_visible()
    page.get_by_label("Your comment").fill("Well paved.")
    page.get_by_role("button", name="Comment", exact=True).click()
    expect(page.locator(".comment")).to_contain_text("Well paved.")
    page.goto("/app/profile")
    page.get_by_label("Display name").fill("Olive Marsh")
    page.get_by_role("button", name="Save").click()
    page.goto("/app/people/olive")
    expect(page.get_by_role("heading", level=1)).to_have_text("Olive Marsh")
    page.get_by_role("link", name="Votes", exact=True).click()
    expect(page.get_by_role("main")).to_contain_text("A field guide to paving")
    page.get_by_role("link", name="Comments", exact=True).click()
    page.get_by_role("link", name="Comments on articles").click()
    expect(page.locator(".row", has_text="Well paved.")).to_contain_text("on A field guide to paving")
    page.get_by_role("link", name="Bookmarks").first.click()
    expect(page.get_by_role("heading", name="Bookmarks")).to_be_visible()
    page.goto("/app/articles?order=top")
    for period in ("Today", "This week", "All time"):
        page.get_by_role("link", name=period).click()
        expect(page.locator(".chips [aria-current]")).to_have_text(period)
        votes = [int(text.split()[-1]) for text in page.locator(".article .votes .n").all_inner_texts()]
        assert len(votes) > 1
        assert votes == sorted(votes, reverse=True)
    guest = windows().page
    guest.goto("/app/tags/garden")
    expect(guest.locator("article").first).to_contain_text("#garden")


WIDTHS_OF_DIGITS = """async (element) => {
  await document.fonts.ready;
  const digits = document.createElement("span");
  element.replaceChildren(digits);
  return [..."0123456789"].map((digit) => {
    digits.textContent = digit.repeat(10);
    return Math.round(digits.getBoundingClientRect().width);
  });
}"""


def test_wide_windows_show_parts_side_by_side_and_digits_are_equally_wide(
    windows: Windows, plaza: BrowserCommunity
) -> None:
    page = windows(viewport={"width": 1440, "height": 900}).page
    page.goto(f"/app/shop/items/{plaza.item}")
    assert is_left_of(page, ".product-pictures", ".product-summary")
    page.get_by_role("button", name="Add to cart").click()
    page.get_by_role("link", name="View cart (1)").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Cart")
    assert is_left_of(page, "table.cart", ".with-summary > .summary")
    assert len(set(page.locator("table.cart .n").last.evaluate(WIDTHS_OF_DIGITS))) == 1
    page.goto(f"/app/challenges/{plaza.challenge}")
    assert is_left_of(page, ".challenge-talk", ".challenge-page > .panel")


def is_left_of(page: Page, left: str, right: str) -> bool:
    first, second = (page.locator(each).first.bounding_box() for each in (left, right))
    assert first is not None
    assert second is not None
    return first["x"] + first["width"] <= second["x"] and abs(first["y"] - second["y"]) < first["height"]


def test_everything_works_without_javascript(windows: Windows, plaza: BrowserCommunity) -> None:
    page = windows(java_script_enabled=False).sign_up("old")
    page.get_by_label("Your post").fill("By hand")
    page.get_by_role("button", name="Post").click()
    expect(page.locator("article").first).to_contain_text("By hand")
    page.locator("article").first.get_by_role("button", name="Like").click()
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
    page.get_by_role("button", name="Join").click()
    page.get_by_role("button", name="Track today").click()
    expect(page.get_by_text("1 of 21 days tracked")).to_be_visible()
    page.goto("/app/events/harvest")
    expect(page.get_by_text("you are not counted")).to_be_visible()
    page.goto(f"/app/shop/items/{plaza.create_item('A plain lamp', 3)}")
    page.get_by_label("Quantity").fill("2")
    page.get_by_role("button", name="Add to cart").click()
    page.get_by_label("Quantity of").fill("3")
    page.get_by_role("button", name="Update").click()
    page.get_by_role("link", name="Check out").click()
    page.get_by_role("button", name="Place order").click()
    expect(page.locator("table.cart")).to_contain_text("3 × €19.90")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("link", name="Sign in").first).to_be_visible()


def test_a_page_that_was_unavailable_opens_by_itself(windows: Windows, plaza: BrowserCommunity) -> None:
    window = windows()
    valkey = plaza.server.valkey()
    valkey.suspend()
    try:
        window.page.goto("/app/articles?order=time")
        expect(window.page.get_by_role("heading", level=1)).to_have_text("Plaza is briefly unavailable")
        expect(window.page.get_by_role("status").first).to_have_text("This page opens by itself as soon as it can.")
        found = look_at(window.page, "unavailable")
    finally:
        valkey.resume()
    expect(window.page.get_by_role("heading", level=1)).to_have_text("Articles")
    assert found == []
    window.errors = [line for line in window.errors if "503" not in line]


def test_the_first_paint_of_explore_takes_five_requests(windows: Windows) -> None:
    window = windows()
    response = window.page.goto("/app")
    assert response is not None
    kinds = [re.sub(r".*/|[?].*", "", url) for url in window.requests if not url.startswith("data:")]
    assert sorted(kinds[:5]) == ["app", "app.css", "app.js", "figtree.woff2", "newsreader.woff2"]
    assert set(kinds[5:]) <= {"root.js", "updates.js", "event-stream.js", "stream"}, "what changes is loaded afterwards"
    assert len(response.body()) < 100_000


def test_pictures_of_other_hosts_are_loaded_and_a_missing_one_shows_the_generated_avatar(
    windows: Windows, plaza: BrowserCommunity
) -> None:
    plaza.request("PATCH", "/users/pia", plaza.register("pia"), avatar="https://img.example/missing")
    shown, lost = (
        plaza.request("POST", "/posts", "pia", content=f"Look, {name}", media_url=f"https://img.example/{name}")["id"]
        for name in ("a.png", "missing.png")
    )
    window = windows()
    page = window.page
    page.route("https://img.example/a.png", lambda route: route.fulfill(body=PIXEL, content_type="image/png"))
    page.route("https://img.example/missing*", lambda route: route.fulfill(status=404))
    page.goto("/app")
    picture = page.get_by_role("img", name="Image from img.example")
    expect(picture).to_have_count(1)
    expect(page.get_by_role("link", name="Image from img.example is not available")).to_be_visible()
    until(lambda: picture.evaluate("image => image.complete && image.naturalWidth === 1"))
    expect(page.locator("article .avatar.picture svg").first).to_be_visible()
    assert not [url for url in window.requests if not url.startswith((plaza.url, "data:", "https://img.example/"))]
    window.requests.clear()
    window.errors = [line for line in window.errors if "404" not in line]
    for post in (shown, lost):
        plaza.request("DELETE", f"/posts/{post}", "pia")


def test_the_keyboard_is_sufficient(windows: Windows) -> None:
    page = windows().sign_in("mira")
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
    assert like.evaluate(outline) == "solid", "the focus is visible"


def every_page(plaza: BrowserCommunity) -> dict[str, str]:
    return {
        "explore": "/app",
        "following": "/app/following",
        "bookmarks": "/app/bookmarks",
        "blocked": "/app/blocked",
        "blocked-user": "/app/people/nil",
        "hashtag": "/app/tags/garden",
        "hashtag-ranked": "/app/tags/garden/ranked",
        "post": f"/app/posts/{plaza.post}",
        "profile": "/app/people/evil",
        "followers": "/app/people/jonas/followers",
        "own-profile": "/app/profile",
        "own-articles": "/app/you/articles",
        "own-votes": "/app/you/votes",
        "own-comments": "/app/you/comments",
        "account": "/app/account",
        "security": "/app/security",
        "notifications": "/app/notifications",
        "notification-settings": "/app/notifications/settings",
        "report": f"/app/report?subject=post&id={plaza.post}",
        "articles": "/app/articles",
        "top-articles": "/app/articles?order=top&period=week",
        "group": "/app/groups/cities",
        "article": f"/app/articles/{plaza.article}",
        "new-article": "/app/articles/new",
        "challenges": "/app/challenges",
        "challenge": f"/app/challenges/{plaza.challenge}",
        "for-you": "/app/challenges/for-you",
        "new-challenge": "/app/challenges/new",
        "leaderboard": f"/app/challenges/{plaza.challenge}/leaderboard",
        "events": "/app/events",
        "event": "/app/events/harvest",
        "coming-event": "/app/events/coming",
        "odd-event": "/app/events/odd",
        "search": "/app/search?q=garden",
        "search-nothing": "/app/search?q=jonass",
        "shop": "/app/shop",
        "item": f"/app/shop/items/{plaza.item}",
        "cart": "/app/shop/cart",
        "checkout": "/app/shop/checkout",
        "orders": "/app/shop/orders",
        "sign-in": "/app/sign-in",
        "sign-up": "/app/sign-up",
        "forgot-password": "/app/forgot-password",
        "missing": "/app/nowhere",
    }


def test_every_page_is_accessible_in_light_and_dark_wide_and_narrow(windows: Windows, plaza: BrowserCommunity) -> None:
    window = windows(viewport={"width": 1440, "height": 900}, color_scheme="light", reduced_motion="reduce")
    page = window.sign_in("mira")
    plaza.register("nil", "Nil, blocked by mira")
    plaza.request("POST", "/users/nil/block", "mira")
    own = plaza.request("POST", "/posts", "mira", content="Mine")["id"]
    comment = plaza.request("POST", f"/posts/{own}/comments", "mira", content=EVIL)["id"]
    plaza.request("POST", "/challenges/posts/1/comments", "mira", content=EVIL)
    plaza.request("POST", f"/posts/{own}/comments", "evil", content=EVIL)
    plaza.request("PATCH", "/users/mira", "mira", bio=EVIL, links=EVIL)  # also in the forms that edit them
    bought = plaza.create_item("Long" * 40, 5)
    for item in (bought, plaza.item):
        page.goto(f"/app/shop/items/{item}")
        page.get_by_role("button", name="Add to cart").click()
        expect(page.get_by_role("link", name="View cart (1)")).to_be_visible()
        if item == bought:
            page.goto("/app/shop/checkout")
            page.get_by_role("button", name="Place order").click()
            page.wait_for_url("**/app/shop/orders/*")
            order = page.url.partition(plaza.url)[2]
    new = {"title": "Read at night", "category": 2, "is_public": True, "duration": 30}
    joined = plaza.request("POST", "/challenges", "mira", **new)["id"]
    for action in ("join", "track"):
        plaza.request("POST", f"/challenges/{joined}/{action}", "mira")
    long_name = "America/Argentina/ComodRivadavia"
    plaza.request("PUT", f"/challenges/{joined}/reminder", "mira", hour=18, time_zone=long_name)
    plaza.request("PUT", "/analytics/events/coming", "admin", title=EVIL[:190], description=EVIL, starts_at=4 * 10**12)
    noted = plaza.request("POST", f"/challenges/{joined}/posts", "mira", text=EVIL)["id"]
    mine = {
        "edit-challenge-post": f"/app/challenges/posts/{noted}/edit",
        "edit-post": f"/app/posts/{own}/edit",
        "joined-challenge": f"/app/challenges/{joined}",
        "edit-comment": f"/app/posts/{own}/comments/{comment}/edit",
        "challenge-post": "/app/challenges/posts/1",
        "edit-challenge": f"/app/challenges/{joined}/edit",
        "invitations": f"/app/challenges/{joined}/invitations",
        "tracked-days": f"/app/challenges/{joined}/days",
        "order": order,
    }
    found: dict[str, list[str]] = {}
    for name, path in {**every_page(plaza), **mine}.items():
        page.goto(path)
        found[name] = look_at(page, name)
    found |= look_at_answers(page, plaza)
    window.context.clear_cookies()
    page.goto("/app")
    found["guest"] = look_at(page, "guest")
    window.errors = [line for line in window.errors if "404" not in line and "401" not in line and "403" not in line]
    assert {name: violated for name, violated in found.items() if violated} == {}


def look_at_answers(page: Page, plaza: BrowserCommunity) -> dict[str, list[str]]:
    """Look at pages that answer a form: after a report, and after a text that was sent without a session."""
    page.goto(f"/app/report?subject=post&id={plaza.post}")
    page.get_by_label("What is wrong").fill("Rude")
    page.get_by_role("button", name="Report").click()
    expect(page.get_by_text("Thank you")).to_be_visible()
    found = {"reported": look_at(page, "reported")}
    page.goto("/app")
    page.get_by_label("Your post").fill(EVIL)
    page.context.clear_cookies()
    page.evaluate("document.getElementById('content').form.submit()")  # as without JavaScript
    page.get_by_label("Username").fill("mira")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("button", name="Send again")).to_be_visible()
    return found | {"draft": look_at(page, "draft")}


def wait_until_found(plaza: BrowserCommunity, name: str) -> None:
    """Wait until the index has a user."""
    deadline = monotonic() + TIME_LIMIT_SECONDS
    while not plaza.request("GET", f"/search/suggest?q={name}")["users"]:
        assert monotonic() < deadline, f"{name} is not in the index"


def test_the_search_box_suggests_and_finds_with_the_keyboard_alone(windows: Windows, plaza: BrowserCommunity) -> None:
    plaza.register("zebulon", "Zebulon Quist")
    plaza.request("POST", "/users/zebulon/follow", "mira")
    wait_until_found(plaza, "zebulon")
    page = windows().page
    page.goto("/app")
    page.keyboard.press("/")
    expect(page.get_by_role("combobox", name="Search")).to_be_focused()
    page.keyboard.type("zeb")
    option = page.get_by_role("option", name="Zebulon Quist")
    expect(option).to_be_visible()
    held: list[Route] = []
    page.route("**/app/search/suggest?q=zebu", lambda route: held.append(route))
    with page.expect_request("**/app/search/suggest?q=zebu"):
        page.keyboard.type("u")
    page.keyboard.press("ArrowDown")
    with page.expect_request_finished():
        held[0].continue_()
    expect(option).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/app/people/zebulon$"))  # and for its scripts
    page.keyboard.press("/")
    page.keyboard.type("quist")
    page.keyboard.press("Enter")
    expect(page.locator("mark", has_text="Quist")).to_be_visible()
