"""Pages that move: what one user does shows in the open pages of another, in two browsers at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.community import BrowserCommunity, BrowserWindow, community


@pytest.fixture(scope="module")
def plaza(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserCommunity]:
    with community(tmp_path_factory.mktemp("moving") / "var") as plaza:
        yield plaza


@pytest.fixture
def windows(browser: Browser, plaza: BrowserCommunity) -> Iterator[list[BrowserWindow]]:
    opened = [BrowserWindow(browser, plaza.url) for _ in range(2)]
    yield opened
    for window in opened:
        window.close()


def test_news_shows_in_the_open_pages_of_others(plaza: BrowserCommunity, windows: list[BrowserWindow]) -> None:
    mira, jonas = (window.sign_in(name) for window, name in zip(windows, ("mira", "jonas"), strict=True))
    mira.goto("/app/following")
    expect(mira.get_by_role("heading", name="Following")).to_be_visible()
    loads = len([url for url in windows[0].requests if url.endswith("/app/following")])
    jonas.get_by_label("Your post").fill("The kale is still fine")
    jonas.get_by_role("button", name="Post").click()
    own = jonas.locator("article", has_text="The kale is still fine")
    expect(own).to_be_visible()

    # New posts are counted, then inserted in place.
    mira.get_by_role("link", name="1 new post").click()
    card = mira.locator("article", has_text="The kale is still fine")
    expect(card).to_be_visible()
    expect(mira.locator("#new-posts")).to_be_empty()
    assert len([url for url in windows[0].requests if url.endswith("/app/following")]) == loads + 1, "no reload"

    # Counts of shown posts change; the author's own page did not count the own post.
    card.get_by_role("button", name="Like").click()
    expect(own.get_by_role("button", name="Like, 1 so far")).to_be_visible()
    expect(jonas.locator("#new-posts")).to_be_empty()

    # Comments and replies appear in an open thread.
    own.get_by_role("link", name="Comments").click()
    expect(jonas.get_by_role("heading", name="Comments")).to_be_visible()
    card.get_by_role("link", name="Comments").click()
    mira.get_by_label("Your comment").fill("Mine too")
    mira.get_by_role("button", name="Comment", exact=True).click()
    expect(jonas.locator(".comment")).to_contain_text("Mine too")
    expect(jonas.locator("h2#comments")).to_have_text("1 comment")
    jonas.get_by_role("link", name="Reply to mira").click()
    jonas.get_by_label("Your reply").fill("Kale lasts")
    jonas.get_by_role("button", name="Reply").click()
    expect(mira.get_by_role("link", name="1 reply")).to_be_visible()
    expect(mira.locator(".comment")).to_have_count(1)

    # A post that is banned disappears from open pages.
    plaza.request("PATCH", f"/posts/{mira.url.split('/')[-1].split('#')[0]}/ban", "admin")
    expect(mira.get_by_text("This post was removed.")).to_be_visible()


def test_a_mention_rings_the_bell_and_leads_to_the_thread(
    plaza: BrowserCommunity, windows: list[BrowserWindow]
) -> None:
    mira, jonas = (window.sign_in(name) for window, name in zip(windows, ("mira", "jonas"), strict=True))
    post = plaza.request("POST", "/posts", "evil", content="Who keeps bees?")["id"]
    jonas.goto("/app/shop")
    expect(jonas.locator("#bell-count")).to_be_attached()
    before = int(jonas.locator("#bell-count span").first.inner_text() or 0)
    mira.goto(f"/app/posts/{post}")
    mira.get_by_label("Your comment").fill("Ask @jonas")
    mira.get_by_role("button", name="Comment", exact=True).click()
    expect(mira.locator(".comment").get_by_role("link", name="@jonas")).to_be_visible()
    expect(jonas.locator("#bell-count span").first).to_have_text(str(before + 1))
    jonas.get_by_role("link", name="Notifications").click()
    expect(jonas.locator(".notification").first).to_contain_text("mentioned you")
    jonas.locator(".notification").first.get_by_role("link", name="Ask @jonas").click()
    expect(jonas.locator(".comment")).to_contain_text("Ask @jonas")


def test_a_reported_post_is_banned_from_the_queue_and_gone_for_everyone(
    plaza: BrowserCommunity, windows: list[BrowserWindow]
) -> None:
    plaza.register("olga")
    plaza.request("PATCH", "/users/olga/role", "admin", role="admin")
    mira, olga = (window.sign_in(name) for window, name in zip(windows, ("mira", "olga"), strict=True))
    post = plaza.request("POST", "/posts", "evil", content="Buy cheap bells")["id"]
    mira.goto(f"/app/posts/{post}")
    mira.get_by_role("link", name="Report this post").click()
    mira.get_by_label("What is wrong").fill("Advertising")
    mira.get_by_role("button", name="Report").click()
    expect(mira.get_by_text("Thank you")).to_be_visible()
    mira.goto("/app")
    card = mira.locator("article", has_text="Buy cheap bells")
    expect(card).to_be_visible()
    olga.goto("/app/operator/reports")
    entry = olga.locator(".report", has_text="Buy cheap bells")
    expect(entry).to_contain_text("Advertising")
    entry.get_by_role("link", name="Ban…").click()
    olga.get_by_role("button", name="Ban the post").click()
    expect(olga.get_by_role("heading", name="Reports")).to_be_visible()
    expect(entry).to_have_count(0)
    expect(card).to_have_count(0)  # in the open page of another user
    assert plaza.api.get(f"/posts/{post}").status_code == 404
