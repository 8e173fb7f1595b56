"""What users do beside posting, in a real browser: links and discussions, challenges, notifications, the account."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.community import PASSWORD, BrowserCommunity, Windows, community
from tests.processes import until


@pytest.fixture(scope="module")
def plaza(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserCommunity]:
    with community(tmp_path_factory.mktemp("tasks") / "var") as plaza:
        yield plaza


def test_a_link_is_posted_once_discussed_and_deleted(windows: Windows, plaza: BrowserCommunity) -> None:
    window = windows()
    page = window.sign_up("lin")
    page.goto("/app/articles")
    page.get_by_role("link", name="Post a link").click()
    _fill_article(page)
    expect(page.get_by_role("heading", name="How bells are tuned")).to_be_visible()
    page.goto("/app/articles/new")
    _fill_article(page)
    page.get_by_role("alert").get_by_role("link", name="Open it").click()
    page.get_by_label("Your comment").fill("Wel put.")
    page.get_by_role("button", name="Comment", exact=True).click()
    comment = page.locator(".comment")
    comment.get_by_role("link", name="Edit").click()
    page.get_by_label("Text").fill("Well put.")
    page.get_by_role("button", name="Save").click()
    expect(comment).to_contain_text("Well put.")
    expect(comment).to_contain_text("edited")
    page.goto("/app/you/votes")
    page.get_by_role("main").get_by_role("link", name="Articles", exact=True).click()
    expect(page.get_by_role("main")).to_contain_text("How bells are tuned")
    page.goto("/app")
    page.locator(".sidebar").get_by_role("link", name="A field guide to paving").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("A field guide to paving")
    page.goto("/app/groups/craft")
    page.get_by_role("link", name="1 comment").click()
    delete = comment.get_by_role("button", name="Delete the comment by lin")
    delete.click()
    expect(comment).to_be_hidden()
    page.get_by_role("button", name="Undo").click()
    delete.click()
    expect(comment).to_be_hidden()
    page.get_by_text("More", exact=True).click()
    with page.expect_response("**/comments/*/delete"):  # the next message ends that one
        page.get_by_role("button", name="Delete article").click()
    expect(page.get_by_text("This article was deleted.")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("heading", name="How bells are tuned")).to_be_visible()
    page.reload()
    expect(page.locator(".comment")).to_have_count(0)
    page.get_by_text("More", exact=True).click()
    page.get_by_role("button", name="Delete article").click()
    article = page.url.rpartition("/app")[2]
    page.goto("/app/articles")  # leaving the page sends it
    until(lambda: plaza.api.get(article).status_code == 404)
    window.errors = [line for line in window.errors if "409" not in line]  # the same link again


def _fill_article(page: Page) -> None:
    page.get_by_label("Title").fill("How bells are tuned")
    page.get_by_label("Link").fill("https://example.org/bells")
    page.get_by_label("Groups").fill("craft")
    page.get_by_role("button", name="Post").click()


def test_a_challenge_is_started_tracked_shared_and_left(windows: Windows) -> None:
    page, guest = windows().sign_up("cleo"), windows().sign_up("dirk")
    page.goto("/app/challenges")
    page.get_by_role("link", name="Start a challenge").click()
    page.get_by_label("Title").fill("Ten pages")
    page.get_by_label("Category").select_option("Learning")
    page.get_by_label("Unit of amounts").fill("pages")
    page.get_by_label("Public").uncheck()
    page.get_by_role("button", name="Start").click()
    challenge = page.url
    days = [f"{datetime.now(UTC):%Y-%m-%d}"]
    page.get_by_role("button", name="Join").click()
    expect(page.get_by_label("Amount in pages")).to_be_visible()
    days.append(f"{datetime.now(UTC):%Y-%m-%d}")
    page.get_by_label("Amount in pages").fill("12.5")
    page.get_by_role("button", name="Track today").click()
    expect(page.get_by_text("1 of 21 days tracked")).to_be_visible()
    expect(page.get_by_role("main")).not_to_contain_text("0 in a row")
    page.get_by_text("Remind me").click()
    page.get_by_label("Hour").select_option("07:00")
    page.get_by_role("button", name="Save reminder").click()
    expect(page.get_by_text("Reminder at 07:00")).to_be_visible()
    page.get_by_role("link", name="Your days").click()
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("You have not tracked a day yet.")).to_be_visible()
    assert page.get_by_label("Date (UTC)").get_attribute("min") in days, "when she joined"
    page.get_by_role("button", name="Track this day").click()
    expect(page.get_by_role("button", name="Undo")).to_be_visible()

    # The challenge is private: others need an invitation.
    page.goto(challenge)
    page.get_by_role("link", name="Invitations").click()
    page.get_by_label("Username").fill("dirk")
    page.get_by_role("button", name="Invite").click()
    expect(page.get_by_role("link", name="dirk")).to_be_visible()
    guest.goto("/app/challenges/invitations")
    guest.get_by_role("button", name="Join Ten pages").click()
    guest.goto(challenge)
    guest.get_by_label("How is it going?").fill("Page one.")
    guest.get_by_role("button", name="Post").click()
    guest.get_by_role("link", name="Show all").click()
    guest.get_by_role("link", name="Streak", exact=True).click()
    expect(guest.locator(".tabs [aria-current]")).to_have_text("Streak")

    page.goto(challenge)
    post = page.locator(".challenge-post", has_text="Page one.")
    post.get_by_role("link", name="Comments on the post by dirk").click()
    page.get_by_label("Your comment").fill("And page two?")
    page.get_by_role("button", name="Comment", exact=True).click()
    expect(page.locator(".comment")).to_contain_text("And page two?")
    guest.goto(challenge)
    guest.get_by_role("link", name="Edit or delete your post").click()
    guest.get_by_label("Text").fill("Page one and two.")
    guest.get_by_role("button", name="Save").click()
    expect(guest.locator(".challenge-post")).to_contain_text("Page one and two.")
    guest.get_by_role("button", name="Leave").click()
    guest.wait_for_url("**/app/challenges")

    page.goto(challenge)
    page.get_by_role("link", name="Edit or delete challenge").click()
    page.get_by_label("Title").fill("Twelve pages")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", name="Twelve pages")).to_be_visible()
    page.get_by_role("link", name="Edit or delete challenge").click()
    page.get_by_text("Delete challenge").first.click()
    page.get_by_role("button", name="Delete challenge").click()
    page.wait_for_url("**/app/challenges")


def test_notifications_are_read_dismissed_and_chosen(windows: Windows, plaza: BrowserCommunity) -> None:
    post = plaza.request("POST", "/posts", plaza.register("nils"), content="Bells again")["id"]
    plaza.request("POST", f"/posts/{post}/like", "mira")
    plaza.request("POST", "/users/nils/follow", "jonas")
    until(lambda: plaza.request("GET", "/notifications/unread-count", "nils")["unread"] == 2)
    page = windows().sign_in("nils")
    page.get_by_role("link", name="Notifications").click()
    rows = page.locator(".notification")
    expect(rows).to_have_count(2)
    rows.filter(has_text="liked").get_by_role("button", name="Mark as read").click()
    page.get_by_role("link", name="Unread", exact=True).click()
    expect(rows).to_have_count(1)
    page.get_by_role("button", name="Mark all as read").click()
    expect(page.get_by_text("You have read everything.")).to_be_visible()
    page.get_by_role("link", name="All", exact=True).click()
    rows.filter(has_text="follow").get_by_role("button", name="Dismiss").click()
    expect(rows).to_have_count(1)
    page.get_by_role("navigation", name="Notifications").get_by_role("link", name="Settings").click()
    page.get_by_label("New followers").uncheck()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    expect(page.get_by_label("New followers")).not_to_be_checked()


def test_an_account_is_exported_secured_and_deleted(windows: Windows, plaza: BrowserCommunity) -> None:
    plaza.register("ada")  # whose token is a session, too
    window = windows()
    page = window.sign_in("ada")
    page.get_by_role("link", name="ada").click()
    expect(page.get_by_text("No posts yet. Write the first one.")).to_be_visible()
    page.get_by_role("link", name="Account", exact=True).click()
    page.get_by_role("button", name="Sign out everywhere else").click()
    expect(page.locator(".session")).to_have_count(1)
    with page.expect_download() as download:
        page.get_by_role("link", name="Download your data").click()
    assert json.loads(Path(download.value.path()).read_text())["social"]["profile"]["username"] == "ada"
    page.get_by_label("Current password").fill(PASSWORD)
    page.get_by_label("New password").fill("another horse entirely")
    page.get_by_role("button", name="Change password").click()
    expect(page.get_by_text("Your password has been changed.")).to_be_visible()
    page.get_by_text("Delete your account").click()
    page.get_by_label("Your password").fill("another horse entirely")
    page.get_by_role("button", name="Delete account permanently").click()
    expect(page.get_by_role("link", name="Sign in").first).to_be_visible()
    assert plaza.api.get("/users/ada").status_code == 404


def test_an_event_shows_when_it_starts_in_the_readers_zone(windows: Windows, plaza: BrowserCommunity) -> None:
    starts_at = datetime(2040, 6, 1, 18, tzinfo=UTC)
    new = {"title": "Bells at dusk", "starts_at": int(starts_at.timestamp() * 1000)}
    plaza.request("PUT", "/analytics/events/bells", "admin", **new)
    page = windows(timezone_id="Europe/Berlin").page
    page.goto("/app/events")
    page.get_by_role("link", name="Bells at dusk").click()
    starts = page.locator("time").first
    expect(starts).to_have_text(re.compile(r"1 Jun 2040, 20:00 (CEST|GMT\+2)"))
    expect(starts).to_have_attribute("title", "1 Jun 2040, 18:00 UTC")
    expect(page.get_by_text("It has not started yet.")).to_be_visible()
    expect(page.locator(".watching")).to_have_text("1 waiting now")


def test_an_event_that_begins_or_is_moved_is_shown_to_those_who_wait(windows: Windows, plaza: BrowserCommunity) -> None:
    now = datetime.now(UTC).timestamp()
    new = {"title": "Bells at noon", "starts_at": int(now + 3_600) * 1000, "sessions": ["Tower"]}
    plaza.request("PUT", "/analytics/events/noon", "admin", **new)
    page = windows().page
    page.clock.install()
    page.goto("/app/events/noon")
    expect(page.locator(".watching")).to_have_text("1 waiting now")
    expect(page.get_by_role("region", name="Sessions")).to_have_text(re.compile(r"Sessions\s*Tower\s*$"))
    page.route("**/watching", lambda route: route.fulfill(content_type="text/event-stream", body=": \n\n"))
    page.goto("/app/events/noon")  # now only the time that the page was loaded with tells that the event starts
    plaza.request("PUT", "/analytics/events/noon", "admin", starts_at=int(now) * 1000)
    page.unroute("**/watching")
    page.clock.fast_forward(3_610_000)
    expect(page.locator(".watching")).to_have_text("1 watching now")
    expect(page.get_by_role("meter", name="Tower: watching")).to_be_visible()
    page.add_init_script("Math.random = () => 0")
    page.goto("/app/events/noon")
    plaza.request("PUT", "/analytics/events/noon", "admin", title="Bells at last", starts_at=4 * 10**12)
    expect(page.get_by_role("heading", level=1)).to_have_text("Bells at last")
    expect(page.locator(".watching")).to_have_text("1 waiting now")
    # The stream begins with the last minute, when the event had another start.
    page.evaluate("globalThis.loadedOnce = true")
    line = page.locator("#audience-chart .chart-line")
    expect(line).not_to_have_attribute("d", "")
    expect(line).not_to_have_attribute("d", line.get_attribute("d") or "")
    page.clock.fast_forward(60_000)
    assert page.evaluate("loadedOnce")


def test_a_customer_finds_items_by_searching_and_by_what_was_viewed(windows: Windows, plaza: BrowserCommunity) -> None:
    page = windows().page
    page.goto("/app/shop/cart")
    page.get_by_role("link", name="Browse the shop").click()
    page.get_by_role("link", name="Wool blanket").click()
    page.get_by_label("Quantity").fill("2")
    page.get_by_role("button", name="Add to cart").click()
    expect(page.locator(".sections .count")).to_have_text(re.compile("2"))
    page.goto("/app/shop")
    for tab in ("Popular", "Viewed"):
        page.get_by_role("link", name=tab).click()
        expect(page.get_by_role("main")).to_contain_text("Wool blanket")
    other = windows().page
    other.goto("/app/shop")
    other.get_by_role("main").get_by_role("link", name="Wool blanket").click()
    expect(other.get_by_role("heading", name="Wool blanket")).to_be_visible()
    cached = other.reload()  # with the session that the first answer offered
    assert cached is not None
    assert "; hit" in cached.headers["cache-status"]
    other.goto("/app/shop/seen")  # a page from the cache counts as viewed too
    expect(other.get_by_role("main")).to_contain_text("Wool blanket")
    page.get_by_label("Search", exact=True).fill("wool blanket")
    page.keyboard.press("Enter")
    page.get_by_role("navigation").get_by_role("link", name="Shop").last.click()
    page.get_by_role("main").get_by_role("link", name="Wool blanket").click()
    page.get_by_role("link", name="View cart").click()
    expect(page.locator("table.cart")).to_contain_text("€39.80")


def test_a_customer_is_asked_again_if_a_price_changed_and_finds_the_order_again(
    windows: Windows, plaza: BrowserCommunity
) -> None:
    item = plaza.create_item("A dear lamp", 5)
    page = windows().page
    page.goto(f"/app/shop/items/{item}")
    page.get_by_role("button", name="Add to cart").click()
    page.get_by_role("link", name="View cart (1)").click()
    page.get_by_role("link", name="Check out").click()
    plaza.request("PATCH", f"/shop/items/{item}", "admin", price="24.50")
    page.get_by_role("button", name="Place order for €19.90").click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.get_by_role("button", name="Place order for €24.50").click()
    expect(page.locator(".steps [aria-current]")).to_have_text("Placed")
    page.get_by_role("link", name="Orders").click()
    page.get_by_role("link", name=re.compile("^Order ")).click()
    expect(page.locator("table.cart tfoot")).to_contain_text("€24.50")
    windows.all[-1].errors = [line for line in windows.all[-1].errors if "409" not in line]


def test_the_last_item_is_sold_once(windows: Windows, plaza: BrowserCommunity) -> None:
    item = plaza.create_item("The very last lamp", 1)
    guest, other = windows().page, windows().sign_up("liz")
    for page in (guest, other):
        page.goto(f"/app/shop/items/{item}")
        page.get_by_role("button", name="Add to cart").click()
        page.get_by_role("link", name="View cart (1)").click()
        expect(page.locator("table.cart")).to_contain_text("The very last lamp")
        page.get_by_role("link", name="Check out").click()
    guest.get_by_role("button", name="Place order for €19.90").click()
    expect(guest.get_by_role("heading", name="Order", exact=False).first).to_be_visible()
    expect(guest.locator("table.cart")).to_contain_text("1 × €19.90")
    windows.all[-1].errors.clear()
    other.get_by_role("button", name="Place order").click()
    expect(other.get_by_role("alert")).to_be_visible()
    assert all("409" in line for line in windows.all[-1].errors)
    windows.all[-1].errors.clear()
    other.get_by_label("Quantity of").fill("0")
    other.keyboard.press("Tab")
    expect(other.get_by_text("Your cart is empty.")).to_be_visible()
    other.goto(other.url)
    expect(other.get_by_text("Your cart is empty.")).to_be_visible()
    other.goto(f"/app/shop/items/{item}")
    expect(other.locator(".stock")).to_have_text("Sold out")
