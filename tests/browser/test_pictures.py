"""Pictures in a real browser: chosen, pasted and dropped; shown large by keyboard; without scripts."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, FilePayload, Page, Route, expect

from tests.browser.community import BrowserCommunity, BrowserWindow, community
from tests.media.images import HTML, picture
from tests.processes import until

Windows = Callable[..., BrowserWindow]

# Playwright's own waiting uses eval(), which the pages' policy refuses.
ARE_LOADED = "[...document.querySelectorAll('.pictures img')].every((image) => image.naturalWidth > 0)"


@pytest.fixture(scope="module")
def plaza(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserCommunity]:
    with community(tmp_path_factory.mktemp("pictures")) as running:
        yield running


@pytest.fixture
def windows(browser: Browser, plaza: BrowserCommunity) -> Iterator[Windows]:
    opened: list[BrowserWindow] = []

    def open_window(**options: Any) -> BrowserWindow:
        opened.append(BrowserWindow(browser, plaza.url, **options))
        return opened[-1]

    yield open_window
    for window in opened:
        window.close()


def file(seed: int, width: int = 300, height: int = 200) -> FilePayload:
    return {"name": f"{seed}.png", "mimeType": "image/png", "buffer": picture(width, height, seed=seed)}


# Gives a page a file as pasting or dropping it would: playwright has no clipboard or desktop to take it from.
GIVE_FILE = """([kind, data]) => {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const transfer = new DataTransfer();
  transfer.items.add(new File([bytes], "image.png", { type: "image/png" }));
  const options = { bubbles: true, cancelable: true };
  const event = kind === "paste"
    ? new ClipboardEvent(kind, { ...options, clipboardData: transfer })
    : new DragEvent(kind, { ...options, dataTransfer: transfer });
  document.getElementById("content").dispatchEvent(event);
}"""


def give_file(page: Page, kind: str, seed: int) -> None:
    page.evaluate(GIVE_FILE, [kind, base64.b64encode(picture(seed=seed)).decode()])


def test_pictures_are_chosen_pasted_and_dropped_described_removed_and_posted(windows: Windows) -> None:
    window = windows()
    window.context.add_init_script("delete Crypto.prototype.randomUUID")  # as browsers do by http from another host
    page = window.sign_up("painter")
    rows = page.locator("#attachments .attachment")
    page.set_input_files("#pictures", [file(1), file(2)])
    expect(rows.locator("input")).to_have_count(2)
    give_file(page, "paste", 3)
    expect(rows.locator("input")).to_have_count(3)
    give_file(page, "drop", 4)
    expect(rows.locator("input")).to_have_count(4)
    page.set_input_files("#pictures", [file(5)])
    expect(page.locator("#status-message")).to_have_text("A post has at most 4 pictures.")
    rows.nth(1).get_by_role("button", name="Remove").click()
    for number in range(3):
        rows.nth(number).locator("input").fill(f"Picture of {number}")
    page.get_by_label("Your post").fill("Three pictures")
    page.get_by_role("button", name="Post", exact=True).click()
    shown = page.locator("#feed article", has_text="Three pictures").locator(".pictures img:not(.blur)")
    expect(shown).to_have_count(3)
    assert [image.get_attribute("alt") for image in shown.all()] == [f"Picture of {number}" for number in range(3)]
    expect(rows).to_have_count(0)
    page.reload()
    expect(shown).to_have_count(3)
    until(lambda: page.evaluate(ARE_LOADED))
    # The new form works too: its listeners are on the document.
    page.set_input_files("#pictures", [file(6)])
    expect(rows.locator("input")).to_have_count(1)


def test_a_file_that_is_not_a_picture_is_explained_and_the_text_stays(windows: Windows) -> None:
    window = windows()
    page = window.sign_up("mistaken")
    page.get_by_label("Your post").fill("Still here")
    page_called_picture: FilePayload = {"name": "a.png", "mimeType": "image/png", "buffer": HTML}
    page.set_input_files("#pictures", [page_called_picture])
    expect(page.locator("#status-message")).to_contain_text("a.png: This is not a picture")
    expect(page.locator("#attachments .attachment")).to_have_count(0)
    expect(page.get_by_label("Your post")).to_have_value("Still here")
    assert window.errors.pop().startswith("Failed to load resource")  # the browser's own note of the 422 response


def test_pictures_chosen_before_the_script_is_loaded_are_uploaded(windows: Windows) -> None:
    window = windows()
    held: list[Route] = []
    window.page.route("**/composer.js*", lambda route: held.append(route))
    page = window.sign_up("early")
    until(lambda: page.evaluate("document.readyState") == "complete" and held)
    page.set_input_files("#pictures", [file(30)])
    held[0].continue_()
    expect(page.locator("#attachments input")).to_have_count(1)


def test_pictures_have_their_place_before_they_are_loaded(windows: Windows) -> None:
    """The sum of layout shifts is zero, although the pictures arrive late."""
    window = windows(viewport={"width": 380, "height": 800})
    page = window.sign_up("still")
    for seeds in ((10,), (11, 12), (13, 14, 15)):
        page.set_input_files("#pictures", [file(seed, 900, 500) for seed in seeds])
        expect(page.locator("#attachments input")).to_have_count(len(seeds))
        page.get_by_label("Your post").fill(f"{len(seeds)} pictures")
        page.get_by_role("button", name="Post", exact=True).click()
        article = page.locator("#feed article", has_text=f"{len(seeds)} pictures").first
        expect(article.locator(".pictures img:not(.blur)")).to_have_count(len(seeds))
    held: list[Route] = []
    is_held = [True]
    page.route(re.compile(r"/media/.*/medium$"), lambda route: held.append(route) if is_held[0] else route.continue_())
    page.add_init_script(
        "window.shift = 0; new PerformanceObserver((list) => { for (const entry of list.getEntries()) window.shift += "
        "entry.value; }).observe({ type: 'layout-shift', buffered: true })"
    )
    page.goto("/app/people/still", wait_until="domcontentloaded")
    expect(page.locator(".pictures")).to_have_count(3)
    heights = page.evaluate("[...document.querySelectorAll('.pictures')].map((each) => each.offsetHeight)")
    assert min(heights) > 100
    is_held[0] = False
    for route in held:
        route.continue_()
    page.evaluate("for (const image of document.querySelectorAll('.pictures img')) image.loading = 'eager'")
    until(lambda: page.evaluate(ARE_LOADED))
    assert page.evaluate("[...document.querySelectorAll('.pictures')].map((each) => each.offsetHeight)") == heights
    assert page.evaluate("window.shift") == 0


def test_the_lightbox_needs_only_the_keyboard(windows: Windows) -> None:
    page = windows().sign_up("typist")
    page.set_input_files("#pictures", [file(20), file(21), file(22)])
    expect(page.locator("#attachments input")).to_have_count(3)
    for number in range(3):
        page.locator("#attachments input").nth(number).fill(f"Shown {number}")
    page.get_by_label("Your post").fill("Large ones")
    page.get_by_role("button", name="Post", exact=True).click()
    first = page.locator("#feed article", has_text="Large ones").locator("[data-lightbox]").first
    first.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Picture")
    expect(dialog).to_be_visible()
    expect(dialog.locator("figcaption")).to_have_text("Shown 0")
    for key, caption, position in (
        ("ArrowRight", "Shown 1", "2 of 3"),
        ("End", "Shown 2", "3 of 3"),
        ("ArrowRight", "Shown 2", "3 of 3"),
        ("ArrowLeft", "Shown 1", "2 of 3"),
        ("Home", "Shown 0", "1 of 3"),
    ):
        page.keyboard.press(key)
        expect(dialog.locator("figcaption")).to_have_text(caption)
        expect(dialog.get_by_role("status")).to_have_text(position)
    expect(dialog.locator("img")).to_have_attribute("src", re.compile(r"/large$"))
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(first).to_be_focused()


def test_everything_about_pictures_works_without_javascript(windows: Windows) -> None:
    page = windows(java_script_enabled=False).sign_up("plain")
    page.get_by_label("Your post").fill("Without scripts")
    page.set_input_files("#pictures", [file(30), file(31)])
    page.get_by_text("Descriptions").click()
    page.get_by_label("Picture 1").fill("The first")
    page.get_by_role("button", name="Post", exact=True).click()
    shown = page.locator("#feed article", has_text="Without scripts").locator(".pictures img:not(.blur)")
    expect(shown).to_have_count(2)
    expect(shown.first).to_have_attribute("alt", "The first")
    page.goto("/app/profile")
    page.set_input_files("#avatar-file", file(32))
    page.get_by_role("button", name="Save picture").click()
    expect(page.locator(".user-header .avatar img")).to_have_attribute("src", re.compile(r"^/media/"))


def test_an_avatar_is_set_by_choosing_a_picture(windows: Windows) -> None:
    page = windows().sign_up("faced")
    page.goto("/app/profile")
    page.set_input_files("#avatar-file", file(40))
    page.wait_for_url("**/app/people/faced")
    for image in page.locator(".user-header .avatar img, .account-user .avatar img").all():
        expect(image).to_have_attribute("src", re.compile(r"^/media/"))
    page.goto("/app/profile")
    page.get_by_role("button", name="Remove picture").click()
    expect(page.locator(".avatar-form .avatar img")).to_have_count(0)
