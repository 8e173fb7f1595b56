"""Pages, scripts and the API documentation of a Plaza under a root path, in a real browser."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.processes import serving
from tests.timeouts import TIME_LIMIT_MS

ROOT = "/community"


def test_scripts_find_plaza_under_a_root_path(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path / "var", PLAZA_ROOT_PATH=ROOT) as server, browser.new_context() as context:
        context.set_default_timeout(TIME_LIMIT_MS)
        page = context.new_page()
        outside: list[str] = []
        page.on("request", lambda request: outside.append(request.url) if ROOT not in request.url else None)
        page.goto(f"{server.url}/app/sign-up")
        page.get_by_label("Username").fill("mira")
        page.get_by_label("Password", exact=True).fill("correct horse")
        page.get_by_role("button", name="Create account").click()
        page.wait_for_url(f"{server.url}/app")
        page.locator("#new-post textarea").fill("Sent by a script")
        page.locator("#new-post").get_by_role("button", name="Post").click()
        expect(page.locator("article", has_text="Sent by a script")).to_be_visible()
        expect(page).to_have_url(f"{server.url}/app")
        page.goto(f"{server.url}/docs#ping")
        form = page.locator("#ping form.try")
        expect(form).to_be_visible()
        form.get_by_role("button", name="Send").click()
        expect(form.locator("..")).to_contain_text("pong")
        assert outside == []
