"""A small community on a real `plaza serve`, created over HTTP, as content for the pages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, BrowserContext, Page

from tests.processes import ServerProcess
from tests.timeouts import TIME_LIMIT_MS, TIME_LIMIT_SECONDS

PASSWORD = "correct horse"
TAGGED = "The first frost. The basil gave up, the kale did not. #garden"
EVIL = (
    "<script>alert(1)</script><img src=x onerror=alert(1)>\"'><svg/onload=alert(1)> javascript:alert(1) "
    'https://example.org/"onclick=alert(1) \u202etxt.exe\u202c \u2066\u2067\u2068 Z̷̢̛̪̀a̸̡̛l̴̢g̵̨o̶̢ مرحبا 👩\u200d👩\u200d👧 '
    + "w"
    * 300
)


class BrowserCommunity:
    """A server with users, posts, articles, challenges, events and items, and the tokens of the users."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.url = server.url
        self.api = httpx.Client(base_url=self.url, timeout=TIME_LIMIT_SECONDS)
        self.admin = {"x-api-key": (server.data_dir / "api-key").read_text().strip()}
        self.tokens: dict[str, dict[str, str]] = {}

    def register(self, name: str, display_name: str = "") -> str:
        registered = self.request("POST", "/auth/register", username=name, password=PASSWORD, display_name=display_name)
        self.tokens[name] = {"authorization": f"Bearer {registered['access_token']}"}
        return name

    def request(self, method: str, path: str, user: str = "", **body: Any) -> Any:
        headers = {"admin": self.admin, "": {}, **self.tokens}[user]
        response = self.api.request(method, path, headers=headers, json=body)
        assert response.is_success, response.text
        return response.json() if response.content else None

    def fill(self) -> None:
        """Create content for every page."""
        for name, display_name in (("mira", "Mira Okafor"), ("jonas", "Jonas Lindqvist"), ("evil", EVIL[:190])):
            self.register(name, display_name)
        self.post = self.request("POST", "/posts", "jonas", content=TAGGED)["id"]
        self.request("POST", f"/posts/{self.post}/comments", "mira", content=EVIL)
        self.request("POST", f"/posts/{self.post}/like", "mira")
        self.request("POST", "/posts", "evil", content=EVIL)
        self.request("PATCH", "/users/evil", "evil", bio=EVIL, links=EVIL)
        self.request("POST", "/users/jonas/follow", "mira")
        self.article = self.request(
            "POST",
            "/articles",
            "jonas",
            title="A field guide to paving",
            link="https://example.org/a",
            groups=["cities"],
        )["id"]
        self.request("POST", "/articles", "evil", title=EVIL[:290], link="https://example.org/%3Cscript%3E")
        self.challenge = self.request(
            "POST", "/challenges", "jonas", title="Walk before breakfast", category=1, is_public=True, duration=21
        )["id"]
        self.request("POST", f"/challenges/{self.challenge}/join", "jonas")
        self.request("POST", f"/challenges/{self.challenge}/posts", "jonas", text="Rain, went anyway.")
        odd = self.request("POST", "/challenges", "evil", title=EVIL[:190], category=5, is_public=True, duration=9)[
            "id"
        ]
        self.request("POST", f"/challenges/{odd}/join", "evil")
        self.request("POST", f"/challenges/{odd}/posts", "evil", text=EVIL)
        self.request("PUT", "/analytics/events/odd", "admin", title=EVIL[:190], sessions=[EVIL[:100].replace("#", "")])
        self.request("PUT", "/analytics/events/harvest", "admin", title="Harvest night", sessions=["Main stage"])
        self.item = self.create_item("Brass bell", 1)
        self.create_item("Wool blanket", 20)

    def create_item(self, name: str, qty: int) -> int:
        item = self.request(
            "POST", "/shop/items", "admin", name=name, description="Warm.\n\n" + EVIL, price="19.90", qty=qty
        )
        return int(item["id"])


@contextmanager
def community(data_dir: Path, currency: str = "EUR") -> Iterator[BrowserCommunity]:
    server = ServerProcess(data_dir, "serve", "--empty", PLAZA_RATE_LIMITS="off", PLAZA_CURRENCY=currency)
    try:
        running = BrowserCommunity(server.wait_for("Ctrl-C stops it."))
        running.fill()
        yield running
        running.api.close()
    finally:
        server.process.kill()
        server.process.wait()


class BrowserWindow:
    """A browser window with its own cookies. It records requests, errors and dialogs."""

    def __init__(self, browser: Browser, url: str, **options: Any) -> None:
        self.url = url
        self.context: BrowserContext = browser.new_context(base_url=url, **options)
        self.context.set_default_timeout(TIME_LIMIT_MS)
        self.page: Page = self.context.new_page()
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", lambda dialog: self.errors.append(f"dialog: {dialog.message}"))
        self.page.on(
            "console", lambda line: self.errors.append(line.text) if line.type in ("error", "warning") else None
        )

    def sign_up(self, name: str) -> Page:
        self.page.goto("/app/sign-up")
        self.page.get_by_label("Username").fill(name)
        self.page.get_by_label("Password").fill(PASSWORD)
        self.page.get_by_role("button", name="Create account").click()
        self.page.wait_for_url(f"{self.url}/app")
        return self.page

    def sign_in(self, name: str) -> Page:
        self.page.goto("/app/sign-in")
        self.page.get_by_label("Username").fill(name)
        self.page.get_by_label("Password").fill(PASSWORD)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_url(f"{self.url}/app")
        return self.page

    def close(self) -> None:
        """Close the window and require that it loaded nothing from other hosts and logged no errors."""
        self.context.close()
        # On a busy machine a font may arrive after the first paint, and is then used from the next page on.
        errors = [line for line in self.errors if "was preloaded using link preload but not used" not in line]
        assert errors == [], "no script errors, no violations of the content policy, no dialogs"
        foreign = [url for url in self.requests if not url.startswith((self.url, "data:", "blob:", "about:"))]
        assert foreign == [], "nothing is loaded from other hosts"


class Windows:
    """Opens browser windows. The fixture closes them and checks their errors."""

    def __init__(self, browser: Browser, url: str) -> None:
        self._browser, self._url = browser, url
        self.all: list[BrowserWindow] = []

    def __call__(self, **options: Any) -> BrowserWindow:
        self.all.append(BrowserWindow(self._browser, self._url, **options))
        return self.all[-1]
