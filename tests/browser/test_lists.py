"""Lists of posts in a real browser: what the first view costs, and that nothing moves while it loads."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import pytest
from playwright.sync_api import Response

from tests.browser.community import BrowserCommunity, Windows, community

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
    with community(tmp_path_factory.mktemp("lists") / "var") as plaza:
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


def transferred(response: Response) -> bytes:
    """The body as it is sent: Plaza compresses style sheets and scripts, a proxy in front of it compresses pages."""
    body = response.body()
    return body if response.url.endswith(".woff2") else gzip.compress(body)
