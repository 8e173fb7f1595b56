"""The operator pages in a real browser, on a server with the demo: live figures, the key browser, an audit; also
without JavaScript, and checked for accessibility.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime

import httpx
import pytest
from playwright.sync_api import Browser, FilePayload, Page, Route, expect

from plaza.demo.loaders.live import EVENT
from tests.browser.accessibility import look_at
from tests.browser.community import BrowserWindow
from tests.browser.demo_server import SEND_HEARTBEAT, DemoServer, confirm, running_demo, sign_in_as_robin
from tests.media.images import picture
from tests.processes import until
from tests.timeouts import TIME_LIMIT_SECONDS

# Playwright finds nothing on a page that is being left.
LOG_MESSAGES = """() => {
  const status = document.getElementById("status-message");
  new MutationObserver(() => console.log(status.textContent)).observe(status, { childList: true });
}"""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoServer]:
    with running_demo(tmp_path_factory.mktemp("operator") / "var") as server:
        yield server


@pytest.fixture
def robin(browser: Browser, demo: DemoServer) -> Iterator[Page]:
    """The page of the demo's admin."""
    window = sign_in_as_robin(browser, demo, viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    yield window.page
    window.close()


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
    held: list[Route] = []
    robin.route("**/live/audience*", lambda route: held.append(route))
    robin.evaluate(LOG_MESSAGES)
    with robin.expect_console_message(lambda line: line.text == "Loading…"):  # it takes seconds for large audiences
        robin.get_by_role("link", name="Audience: how long viewers stay").click(no_wait_after=True)
    held[0].continue_()
    robin.wait_for_url("**/live/audience*")
    robin.go_back()
    expect(robin.locator("#f-state")).to_have_text("updating live")
    expect(robin.locator("#status-message")).to_be_empty()
    assert robin.locator("#f-chart .chart-line").get_attribute("d")
    expect(robin.locator(".chart-area", has=robin.locator("#f-chart"))).to_have_attribute("data-max", re.compile(r"\d"))


def test_the_live_page_reconnects_after_an_error_and_shows_an_empty_audience(
    browser: Browser, demo: DemoServer
) -> None:
    window = sign_in_as_robin(browser, demo)
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
    assert len(requests) == 3, "the browser alone would have given up: a stream, why it was refused, and a stream"
    for part in ("session", "country", "group"):
        expect(page.locator(f'[data-shares="{part}"] tbody')).to_have_text("No viewers.")
    page.unroute("**/operator/live/stream*")
    answers = iter((503, 503, 503))
    page.route("**/operator/live/stream*", lambda route: route.fulfill(status=next(answers, 403)))
    page.reload()
    expect(page.locator("#f-state")).to_have_text("not updated: you may not see this page any more")
    window.errors = [line for line in window.errors if "503" not in line and "403" not in line]
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
    confirm(robin, "Suspend ola?", "Suspend the user")
    robin.get_by_role("button", name="Lift suspension").click()
    robin.locator(".links").get_by_role("link", name="Keys").click()
    expect(robin.get_by_role("link", name="user:ola:followers", exact=True)).to_be_visible()

    robin.goto("/app/operator/items")
    robin.get_by_text("Create an item").click()
    for label, value in (("Name", "Storm lantern"), ("Price in EUR", "31.00"), ("Stock", "3")):
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
    confirm(robin, f"Cancel order {order}?", "Cancel the order", clicks=2)
    expect(robin.locator("h1 .badge")).to_have_text("cancelled")
    robin.goto(item)
    expect(robin.get_by_role("heading", name="Stock: 2")).to_be_visible()
    robin.get_by_role("link", name="Withdraw item…").click()
    confirm(robin, "Withdraw Storm lantern?", "Withdraw the item")
    expect(robin.get_by_role("button", name="Sell it again")).to_be_visible()
    robin.goto("/app/operator/items")
    robin.get_by_label("Name or number").fill("storm")
    robin.get_by_role("main").get_by_role("button", name="Search").click()
    expect(robin.get_by_role("row", name=re.compile("Storm lantern"))).to_contain_text("withdrawn")

    robin.get_by_role("link", name="Storm lantern").click()
    robin.get_by_role("button", name="Sell it again").click()
    robin.get_by_role("link", name="Open in the shop").click()
    expect(robin.get_by_role("button", name="Add to cart")).to_be_visible()

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
    robin.get_by_role("link", name="Disable…").click()
    confirm(robin, "Disable the webhook?", "Disable the webhook")
    robin.get_by_role("button", name="Enable").click()
    retry = robin.get_by_role("button", name="Retry now").first
    until(lambda: robin.reload() is not None and retry.is_visible())  # something happened, and could not be sent
    retry.click()
    expect(robin.get_by_role("status").first).to_have_text("It is sent again now.")
    robin.get_by_text("Edit this webhook").click()
    robin.get_by_label("Description").fill("For billing")
    robin.get_by_role("button", name="Save").click()
    expect(robin.locator(".page-header")).to_contain_text("For billing")
    robin.get_by_role("link", name="Replace secret…").click()
    confirm(robin, "Replace the secret?", "Replace the secret")
    expect(robin.get_by_role("heading", name="Secret")).to_be_visible()
    expect(robin.get_by_role("link", name="Disable…")).to_be_visible()
    robin.get_by_role("link", name="Remove webhook…").click()
    confirm(robin, "Remove the webhook?", "Remove the webhook")
    expect(robin.get_by_text("No webhooks yet.")).to_be_visible()
    robin.goto("/app/operator/articles")
    row = robin.locator(".desk-articles tbody tr").first
    title, author = row.locator("th a").first.inner_text(), row.locator("td").first.inner_text()
    for label, text in (("Author", author), ("Words of the title", title)):
        robin.get_by_label(label).fill(text)
        robin.get_by_role("main").get_by_role("button", name="Search").click()
        expect(robin.get_by_label(label)).to_have_value(text)
        expect(robin.get_by_role("main").get_by_role("link", name=title, exact=True)).to_be_visible()
        if label == "Author":
            assert set(robin.locator(".desk-articles tbody td:nth-child(2)").all_inner_texts()) == {author}
    robin.goto("/app/operator/articles")
    robin.get_by_label("Number").fill("1")
    robin.get_by_role("main").get_by_role("button", name="Search").click()
    robin.get_by_role("link", name="Delete… article 1").click()
    robin.get_by_role("main").get_by_role("link", name="Back").click()
    expect(robin.get_by_label("Number")).to_have_value("1")
    robin.get_by_role("link", name="Delete… article 1").click()
    confirm(robin, "Delete the article?", "Delete the article")
    expect(robin.get_by_text("No articles match.")).to_be_visible()

    robin.goto("/app/operator/log?kind=admin")
    for done in ("suspension", "state=cancelled", "withdrawn=true", "title=Lantern walk", "webhook", "article"):
        expect(robin.locator("table.log")).to_contain_text(done)


def test_an_operator_manages_a_user_and_their_sessions(browser: Browser, demo: DemoServer, robin: Page) -> None:
    other = BrowserWindow(browser, demo.url)
    other.page.goto("/app/sign-in")
    other.page.get_by_role("button", name="Amara").click()
    expect(other.page.get_by_role("banner").get_by_role("link", name="amara")).to_be_visible()

    robin.goto("/app/operator/users")
    robin.get_by_label("Role").select_option("model")
    robin.get_by_role("main").get_by_role("button", name="Search").click()
    assert set(robin.locator("tbody td:nth-child(2)").all_inner_texts()) == {"model"}
    robin.get_by_role("main").get_by_role("link", name="amara").click()
    robin.get_by_role("link", name="End… session on").first.click()
    confirm(robin, re.compile("^End"), re.compile("^End"))
    expect(robin.get_by_text("Signed in nowhere.")).to_be_visible()
    other.page.goto("/app/bookmarks")
    expect(other.page.get_by_role("heading", name="Sign in")).to_be_visible()
    other.close()
    for role in ("user", "model"):
        robin.get_by_label("Role").select_option(role)
        robin.get_by_role("button", name="Change…").click()
        confirm(robin, f"Make amara a {role}?", "Change the role")
        expect(robin.locator(".page-header .badge")).to_have_text(role)

    other = BrowserWindow(browser, demo.url)
    other.page.goto("/app/sign-in")
    other.page.get_by_role("button", name="Amara").click()
    other.page.wait_for_url(f"{demo.url}/app")
    robin.goto("/app/operator/users/amara/role?role=admin")
    robin.get_by_role("button", name="Change the role").click()
    expect(robin.locator(".page-header .badge")).to_have_text("admin")
    other.page.goto("/app/operator/health")
    expect(other.page.locator("#h-state")).to_have_text("updating live")
    robin.goto("/app/operator/users/amara/role?role=model")
    robin.get_by_role("button", name="Change the role").click()
    expect(other.page.locator("#h-state")).to_have_text("not updated: you may not see this page any more")
    robin.get_by_role("link", name="End all sessions…").click()
    confirm(robin, re.compile("^End"), re.compile("^End"))
    expect(robin.get_by_text("Signed in nowhere.")).to_be_visible()
    other.page.goto("/app/bookmarks")
    expect(other.page.get_by_role("heading", name="Sign in")).to_be_visible()
    other.errors = [line for line in other.errors if "403" not in line]
    other.close()
    robin.get_by_label("New note").fill("A short note.")
    robin.get_by_role("button", name="Add note").click()
    robin.get_by_role("link", name="Delete…").click()
    confirm(robin, re.compile("note"), re.compile("note"))
    expect(robin.get_by_text("A short note.")).to_have_count(0)
    robin.locator(".links").get_by_role("link", name="Log").click()
    for done in ("role=user", "/sessions", "/notes/"):
        expect(robin.locator("table.log")).to_contain_text(done)


def test_an_operator_gives_an_item_pictures_and_brings_an_order_to_its_end(robin: Page) -> None:
    robin.goto("/app/operator/items/2")
    name = robin.get_by_role("heading", level=1).inner_text()
    tall: FilePayload = {"name": "a.png", "mimeType": "image/png", "buffer": picture(90, 700, seed=7)}
    robin.set_input_files("#file", [tall])
    robin.get_by_label("Description of the first one").fill("Seen from the side")
    robin.get_by_role("button", name="Add", exact=True).click()
    shown = robin.locator(".item-pictures img")
    expect(shown).to_have_count(2)
    robin.get_by_role("button", name="Show first").click()
    expect(shown.first).to_have_attribute("alt", "Seen from the side")
    robin.get_by_role("link", name="Remove… picture 1").click()
    confirm(robin, re.compile("picture"), re.compile("picture"))
    expect(shown).to_have_count(1)
    late = robin.context.new_page()
    late.goto(robin.url)
    robin.get_by_label("Price in EUR").fill("13.00")
    robin.get_by_role("button", name="Save").click()
    late.get_by_label("Price in EUR").fill("14.00")
    late.get_by_role("button", name="Save").click()
    expect(late.get_by_text("Now: 13.00")).to_be_visible()
    expect(late.get_by_label("Price in EUR")).to_have_value("14.00")
    late.get_by_label("Price in EUR").fill("13.00")
    late.get_by_label("Description", exact=True).fill("Two\nlines")
    late.get_by_role("button", name="Save").click()
    expect(late.get_by_role("alert")).to_have_count(0)
    late.close()
    robin.get_by_role("link", name="Open in the shop").click()
    expect(robin.locator(".price").first).to_have_text("€13.00")
    robin.get_by_role("button", name="Add to cart").click()
    expect(robin.locator(".sections .count")).to_contain_text("1")
    robin.goto("/app/shop/cart")
    expect(robin.locator(".cart img").last).to_have_js_property("complete", True)
    robin.get_by_role("link", name="Check out").click()
    robin.get_by_role("button", name="Place order for €13.00").click()
    robin.wait_for_url("**/app/shop/orders/*")
    order = robin.url.rpartition("/")[2]

    robin.goto(f"/app/operator/orders/{order}")
    robin.get_by_role("link", name="of item 2").click()
    expect(robin.get_by_role("heading", name="Keys of item 2")).to_be_visible()
    robin.go_back()
    for state in ("paid", "shipped", "done"):
        robin.get_by_role("button", name=f"Mark as {state}").click()
        expect(robin.locator("h1 .badge")).to_have_text(state)
    expect(robin.get_by_text("Nothing is left to do.")).to_be_visible()
    late = robin.context.new_page()
    late.goto(robin.url)
    robin.get_by_role("textbox", name="Note").fill("Left at the door.")
    robin.get_by_role("button", name="Save note").click()
    expect(robin.get_by_role("textbox", name="Note")).to_have_value("Left at the door.")
    late.get_by_role("textbox", name="Note").fill("The door was closed.")
    late.get_by_role("button", name="Save note").click()
    expect(late.get_by_text("Now: Left at the door.")).to_be_visible()
    expect(late.get_by_role("textbox", name="Note")).to_have_value("The door was closed.")
    late.close()
    assert look_at(robin, "operator-order") == []
    robin.set_viewport_size({"width": 1440, "height": 900})
    robin.goto("/app/operator/orders?state=done")
    robin.locator(".order-items").first.evaluate("(cell) => cell.append(', 1 × Head torch'.repeat(20))")
    robin.get_by_role("link", name=f"Order {order}", exact=True).evaluate("(link) => link.append('00000')")
    note = robin.get_by_role("rowheader", name=f"Order {order}00000 has a note")
    number, text = note.evaluate("(cell) => [...cell.children].map((part) => part.getBoundingClientRect().bottom)")
    assert abs(number - text) < 8, "the note is beside the number"
    robin.emulate_media(forced_colors="active")
    line = "(tab) => getComputedStyle(tab).borderBottomColor + getComputedStyle(tab).borderBottomWidth"
    shown = robin.locator(".tabs a").evaluate_all(f"(tabs) => tabs.map({line})")
    assert sorted(map(shown.count, set(shown))) == [1, len(shown) - 1], "only the current one is underlined"
    robin.emulate_media(forced_colors="none")
    with robin.expect_download() as download:
        robin.get_by_role("link", name="Download CSV").click()
    lines = download.value.path().read_text(encoding="utf-8-sig").splitlines()
    assert len([line for line in lines[1:] if name in line and "done" in line]) == 1
    robin.goto("/app/notifications")
    expect(robin.get_by_role("main")).to_contain_text("Your order")


def test_an_operator_reviews_comments_and_banned_posts(browser: Browser, demo: DemoServer, robin: Page) -> None:
    other = BrowserWindow(browser, demo.url)
    other.page.goto("/app/sign-in")
    other.page.get_by_role("button", name="Mira").click()
    of_others = other.page.locator("#feed > article").filter(has_not_text="@robin")
    of_others.locator(".timestamp a").first.click()
    post = other.page.url.partition("#")[0]
    author = other.page.locator("article.post .byline .soft").inner_text().removeprefix("@")
    robin.goto(post)
    robin.get_by_label("Your comment").fill("To be reviewed")
    robin.get_by_role("button", name="Comment", exact=True).click()
    other.page.reload()
    comment = other.page.locator(".comment", has_text="To be reviewed")
    comment.get_by_role("link", name="Report").click()
    expect(other.page.get_by_text("“To be reviewed”")).to_be_visible()
    other.page.get_by_label("What is wrong").fill("Rude")
    other.page.get_by_role("button", name="Report").click()
    expect(other.page.get_by_text("Thank you")).to_be_visible()
    other.page.goto("/app/articles/2")
    other.page.get_by_label("Your comment").fill("To be deleted")
    other.page.get_by_role("button", name="Comment", exact=True).click()
    written = other.page.locator(".comment", has_text="To be deleted")
    expect(written).to_be_visible()
    other.close()

    robin.goto("/app/articles/2")
    robin.locator(".comment", has_text="To be deleted").get_by_role("link", name="Delete the comment by mira").click()
    confirm(robin, re.compile("^Delete the comment"), "Delete the comment")
    expect(robin.get_by_text("Your comment")).to_be_visible()
    expect(robin.get_by_text("To be deleted")).to_have_count(0)
    robin.goto("/app/challenges/2")
    title = robin.get_by_role("heading", level=1).inner_text()
    robin.get_by_role("link", name="Edit or delete challenge").click()
    robin.get_by_text("Delete challenge").first.click()
    robin.get_by_role("button", name="Delete challenge").click()
    robin.wait_for_url("**/app/challenges")
    expect(robin.get_by_role("main").get_by_role("link", name=title, exact=True)).to_have_count(0)

    robin.goto("/app/operator/reports")
    robin.get_by_role("link", name="Comments", exact=True).click()
    robin.locator(".report", has_text="To be reviewed").get_by_role("link", name="Delete…").click()
    confirm(robin, re.compile("^Delete the comment"), "Delete the comment")
    robin.get_by_role("link", name="Resolved").click()
    expect(robin.locator(".report", has_text="Rude")).to_contain_text("It is gone.")
    robin.goto(post)
    expect(robin.get_by_text("To be reviewed")).to_have_count(0)
    robin.get_by_text("More", exact=True).click()
    robin.get_by_role("main").get_by_role("link", name="Keys").click()
    expect(robin.get_by_role("heading", level=1)).to_contain_text("Keys of post")
    robin.go_back()
    robin.get_by_text("More", exact=True).click()
    robin.get_by_role("link", name="Ban post…").click()
    confirm(robin, re.compile("^Ban"), re.compile("^Ban"))
    robin.goto("/app/operator/reports/banned-posts")
    robin.get_by_role("button", name=f"Unban the post of {author}").click()
    expect(robin.get_by_text("No banned posts.")).to_be_visible()
    robin.goto("/app/operator/log?kind=admin&q=/ban")
    expect(robin.locator("table.log tbody tr")).to_have_count(2)
    robin.goto(post)
    robin.get_by_text("More", exact=True).click()
    robin.get_by_role("link", name="Delete post…").click()
    confirm(robin, f"Delete the post of {author}?", "Delete the post")
    robin.wait_for_url(f"{demo.url}/app")
    robin.goto(f"/app/operator/log?kind=admin&q={post.rpartition('/')[2]}")
    expect(robin.locator("table.log")).to_contain_text("/posts/{id}/delete")


def test_an_operator_closes_reports_and_searches_the_log(browser: Browser, demo: DemoServer, robin: Page) -> None:
    day = f"{datetime.now(UTC):%Y-%m-%d}"
    other = BrowserWindow(browser, demo.url)
    other.page.goto("/app/sign-in")
    other.page.get_by_role("button", name="Mira").click()
    other.page.wait_for_url(f"{demo.url}/app")
    for name in ("tilda", "hana"):
        other.page.goto(f"/app/report?subject=user&id={name}")
        other.page.get_by_label("What is wrong").fill(f"About {name}")
        other.page.get_by_role("button", name="Report").click()
        expect(other.page.get_by_text("Thank you")).to_be_visible()
    other.close()

    robin.goto("/app/operator/reports")
    robin.get_by_role("list", name="What was reported").get_by_role("link", name="Users").click()
    harmless = robin.locator(".report", has_text="About tilda")
    harmless.get_by_label("Note").fill("No harm done.")
    harmless.get_by_role("button", name="Dismiss").click()
    expect(robin.locator(".report")).to_have_count(1)
    robin.get_by_role("link", name="Suspend user…").click()
    robin.get_by_label("Note").fill("For a week.")
    confirm(robin, "Suspend hana?", "Suspend the user", clicks=2)
    for state, note in (("Dismissed", "No harm done."), ("Resolved", "For a week.")):
        robin.get_by_role("link", name=state).click()
        expect(robin.get_by_role("main")).to_contain_text(note)
    robin.get_by_role("link", name="Account of hana").click()
    robin.get_by_role("button", name="Lift suspension").click()
    expect(robin.get_by_role("link", name="Suspend…")).to_be_visible()

    robin.goto("/app/operator/log")
    robin.get_by_role("main").get_by_label("Search").fill("suspend")
    robin.get_by_label("Show").select_option("admin")
    robin.get_by_label("From").fill(day)
    robin.get_by_role("main").get_by_role("button", name="Search").click()
    expect(robin.locator("table.log tbody tr").first).to_contain_text("on=0")
    with robin.expect_download() as download:
        robin.get_by_role("link", name="Download CSV").click()
    lines = download.value.path().read_text(encoding="utf-8-sig").splitlines()
    assert len(lines) == robin.locator("table.log tbody tr").count() + 1
    assert all("suspen" in line and ",admin," in line for line in lines[1:])


def test_health_growth_keys_and_events_show_what_they_promise(robin: Page) -> None:
    robin.goto("/app/operator/health")
    for name in ("p50", "p95", "p99"):
        expect(robin.locator(".figures")).to_contain_text(f"{name}, ms")
    for text in ("Memory limit", "append-only file", "Outbox", "Consumer lag", "Disk"):
        expect(robin.get_by_role("main")).to_contain_text(text)
    robin.get_by_role("link", name="Last week").click()
    robin.get_by_text("Show as table").first.click()
    expect(robin.get_by_role("columnheader", name="p99").first).to_be_visible()

    robin.goto("/app/operator/growth")
    bars = robin.locator("figure.chart", has_text="Active users").locator(".bar")
    until(lambda: robin.reload() is not None and bars.count() > 0)  # a job counts once a minute
    for title in ("New users", "Active users", "Posts", "Votes", "Orders"):
        robin.get_by_text(f"Show as table: {title}").click()
        expect(robin.get_by_role("region", name=f"{title} by day, as a table").locator("tbody tr")).to_have_count(30)

    robin.goto("/app/operator/keys")
    robin.get_by_role("main").get_by_role("searchbox", name="Search").fill("user:mira:following")
    robin.keyboard.press("Enter")
    robin.get_by_role("link", name="user:mira:following", exact=True).click()
    expect(robin.get_by_role("heading", level=1)).to_have_text("user:mira:following")

    robin.evaluate(SEND_HEARTBEAT, {"groups": ["first"]})
    robin.goto("/app/operator/live")
    row = robin.get_by_role("row", name=re.compile("^from-the-test"))
    expect(row).to_contain_text("not declared")
    row.get_by_role("link").click()
    robin.get_by_text("Declare this event").click()
    robin.locator("#edit-title").fill("A surprise")
    robin.get_by_role("button", name="Declare", exact=True).click()
    robin.get_by_text("Edit this event").click()
    robin.locator("#edit-description").fill("No one expected it.")
    robin.get_by_role("button", name="Save").click()
    for starts in ("2099-12-01T18:00", ""):
        robin.get_by_text("Edit this event").click()
        robin.locator("#edit-starts").fill(starts)
        with robin.expect_navigation():
            robin.get_by_role("button", name="Save").click()
        expect(robin.locator("#edit-starts")).to_have_value(starts)
    robin.goto("/app/events")
    robin.get_by_role("main").get_by_role("link", name="A surprise").click()
    expect(robin.get_by_role("main")).to_contain_text("No one expected it.")


def test_operator_pages_work_without_javascript(browser: Browser, demo: DemoServer) -> None:
    window = sign_in_as_robin(browser, demo, java_script_enabled=False)
    page = window.page
    page.goto("/app/operator/live")
    assert int(page.locator("#f-now").inner_text()) > 5
    expect(page.locator('[data-shares="country"]')).to_contain_text("US")
    lines = page.locator("#health-charts .chart-line")
    until(lambda: page.goto("/app/operator/health") and lines.count() == 4)  # the first bucket is complete
    assert lines.first.get_attribute("d"), "the chart is full when the page opens"
    page.get_by_role("button", name="Run audit").click()
    expect(page.get_by_role("heading", name="Audit")).to_be_visible()
    page.get_by_role("link", name="Turn off demo…").click()
    try:
        confirm(page, "Turn off the demo?", "Turn off the demo")
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()  # the demo's admin has no session any more
    finally:
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


def _moderated(demo: DemoServer) -> int:
    """Ban a post, report another twice and close one of these reports. Returns the open one."""
    with httpx.Client(base_url=demo.url, timeout=TIME_LIMIT_SECONDS) as api:
        login = api.post("/auth/login", json={"username": "robin", "password": demo.password})
        api.headers["authorization"] = f"Bearer {login.json()['access_token']}"
        banned, reported = (each["post"]["id"] for each in api.get("/feed/explore?limit=2").json()["posts"])
        api.patch(f"/posts/{banned}/ban").raise_for_status()
        reason = "It says the same in every group, and always with the same link. " * 4
        for state in ("dismissed", ""):
            report = api.post("/reports", json={"subject": "post", "id": reported, "reason": reason})
            report.raise_for_status()
            if state:
                api.patch(f"/reports/{report.json()['id']}", json={"state": state, "note": reason}).raise_for_status()
    return int(report.json()["id"])


def test_operator_pages_are_accessible_in_light_and_dark_wide_and_narrow(robin: Page, demo: DemoServer) -> None:
    report = _moderated(demo)
    found: dict[str, list[str]] = {}
    pages = {
        "operator-live": "/app/operator/live",
        "operator-audience": f"/app/operator/live/audience?event={EVENT}",
        "operator-keys": "/app/operator/keys?q=follow",  # all families look the same
        "operator-family": "/app/operator/keys/user",
        "operator-secrets": "/app/operator/keys/auth_user",
        "operator-key": "/app/operator/keys/user/key?name=user:mira",
        "operator-webhooks": "/app/operator/webhooks",
        "operator-webhook": _failing_webhook(robin),
        "operator-health": "/app/operator/health",
        "operator-health-week": "/app/operator/health?span=week",
        "operator-growth": "/app/operator/growth",
        "operator-users": "/app/operator/users",
        "operator-desk-user": "/app/operator/users/mira",
        "operator-articles": "/app/operator/articles",
        "operator-items": "/app/operator/items",
        "operator-item": "/app/operator/items/1",
        "operator-orders": "/app/operator/orders",
        "operator-reports": "/app/operator/reports",
        "operator-closed-reports": "/app/operator/reports?state=dismissed",
        "operator-confirmation-with-note": f"/app/operator/reports/{report}/remove",
        "operator-banned-posts": "/app/operator/reports/banned-posts",
        "operator-log": "/app/operator/log",
        "operator-keys-of-user": "/app/operator/keys?of=user&id=mira",
        "operator-confirmation": "/app/operator/items/1/withdraw",
        "operator-user": "/app/people/mira",
    }
    for name, path in pages.items():
        robin.goto(path)
        found[name] = look_at(robin, name)
    assert {name: violated for name, violated in found.items() if violated} == {}
