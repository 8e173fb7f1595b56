"""The documentation site builds strictly, loads nothing from elsewhere, and has a search that works from files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_no_page_loads_anything_from_another_site(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    external = re.compile(r'<(?:script|img|iframe)[^>]+src="(https?:[^"]+)|<link[^>]+href="(https?:[^"]+)')
    for page in pages:
        assert external.findall(page.read_text()) == [], page


def test_search_works_from_files(site: Path, browser: Browser) -> None:
    context = browser.new_context()
    failed: list[str] = []
    context.on("requestfailed", lambda request: failed.append(request.url))
    page = context.new_page()
    page.goto((site / "index.html").as_uri())
    # The page loads its index when the search box is first used, and ignores what was typed before.
    page.get_by_placeholder("Search").first.click()
    expect(page.locator(".md-search-result__meta")).to_contain_text("Type to start searching", timeout=60_000)
    page.get_by_placeholder("Search").first.press_sequentially("outbox entry")
    expect(page.locator(".md-search-result__item").first).to_contain_text("utbox", timeout=60_000)
    assert failed == []
    context.close()
