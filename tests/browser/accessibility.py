"""What a browser finds wrong with a page: axe's rules, focus marks, motion, and content wider than the window."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

# CI stores this folder.
ARTEFACTS = Path(__file__).parents[2] / "artefacts" / "screenshots"
AXE = (files("axe_playwright_python") / "axe.min.js").read_text()
OPEN_DETAILS = "for (const details of document.querySelectorAll('details')) details.open = true"

# Elements without a visible mark when they have the keyboard's focus, and elements that move although the user prefers
# reduced motion. The label of a hidden file input has the mark.
FOCUS_AND_MOTION = """() => {
  const marked = (element) => element && getComputedStyle(element).outlineStyle !== "none";
  const name = (element) => element.outerHTML.slice(0, 120);
  const moves = [...document.querySelectorAll("*")].filter((each) => {
    const { transitionDuration, animationName } = getComputedStyle(each);
    return transitionDuration !== "0s" || animationName !== "none";
  });
  const controls = document.querySelectorAll("a[href], button, input, select, textarea, summary");
  const unmarked = [...controls].filter((each) => {
    each.focus({ focusVisible: true, preventScroll: true });
    return document.activeElement === each && !marked(each) && !marked(each.previousElementSibling);
  });
  document.activeElement?.blur();
  return [...unmarked.map((each) => `no focus mark: ${name(each)}`), ...moves.map((each) => `moves: ${name(each)}`)];
}"""

# Tables of which a window shows only a part.
SCROLLED_TABLES = """() => [...document.querySelectorAll(".scroll")]
  .filter((each) => each.scrollWidth > each.clientWidth)
  .map((each) => `${each.scrollWidth - each.clientWidth} px too wide: ${each.getAttribute("aria-label")}`)"""


def excess_widths(page: Page) -> list[str]:
    """The widths at which a page is too wide for its window. 640 px are 1,280 px at a zoom of 200%."""
    found = []
    for width in (1024, 768, 640, 380):
        page.set_viewport_size({"width": width, "height": 800})
        excess = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        found += [f"{excess} px too wide for {width} px"] if excess else []
        found += [f"{width} px: {table}" for table in page.evaluate(SCROLLED_TABLES)]
    return found


def violations(page: Page, *rules: str) -> list[str]:
    """The violations that axe finds; without `rules`, of WCAG 2.2 AA and best practices.

    The frame is the same on all pages, so it is only checked on explore and on the first page of operators.
    """
    only: dict[str, Any] = {"runOnly": {"type": "rule", "values": rules}}
    options = only if rules else {"rules": {"target-size": {"enabled": True}}}  # axe leaves it out by default
    context = {"include": ["html"]} if page.url.endswith(("/app", "/live")) else {"exclude": [".site", ".sidebar"]}
    options |= {"resultTypes": ["violations"], "preload": False}
    found = page.evaluate("([context, options]) => axe.run(context, options)", [context, options])
    return [f"{v['id']}: {node['html'][:160]}" for v in found["violations"] for node in v["nodes"]]


def look_at(page: Page, name: str) -> list[str]:
    """Check the open page wide and light, then dark and narrow, and take pictures. Returns what is wrong."""
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    page.set_viewport_size({"width": 1440, "height": 900})
    page.evaluate(AXE)
    page.evaluate(OPEN_DETAILS)
    found = violations(page)
    page.screenshot(path=ARTEFACTS / f"{name}-1440-light.jpeg", quality=80)
    page.emulate_media(color_scheme="dark")
    found += violations(page, "color-contrast")
    found += page.evaluate(FOCUS_AND_MOTION)
    found += excess_widths(page)
    found += violations(page, "target-size")
    page.screenshot(path=ARTEFACTS / f"{name}-380-dark.jpeg", quality=80)
    if os.environ.get("SCREENSHOTS") == "all":
        _all_pictures(page, name)
    return found


def _all_pictures(page: Page, name: str) -> None:
    """Take pictures of the whole page in every width and scheme."""
    page.evaluate("scrollTo(0, 0)")
    for width in (380, 768, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.screenshot(path=ARTEFACTS / f"{name}-{width}-{scheme}-whole.jpeg", quality=80, full_page=True)
