"""A small community behind a real `plaza serve`, made over HTTP, for pages to show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, BrowserContext, Page

from tests.processes import Serving
from tests.timeouts import TIME_LIMIT_MS, TIME_LIMIT_SECONDS

PASSWORD = "correct horse"
TAGGED = "The first frost. The basil gave up, the kale did not. #garden"
EVIL = (
    "<script>alert(1)</script><img src=x onerror=alert(1)>\"'><svg/onload=alert(1)> javascript:alert(1) "
    'https://example.org/"onclick=alert(1) \u202etxt.exe\u202c \u2066\u2067\u2068 Z̷̢̛̪̀a̸̡̛l̴̢g̵̨o̶̢ مرحبا 👩\u200d👩\u200d👧 '
    + "w"
    * 300
)


class Community:
    """The server, its admin, and people with tokens."""

    def __init__(self, server: Serving) -> None:
        self.server = server
        self.url = server.url
        self.api = httpx.Client(base_url=self.url, timeout=TIME_LIMIT_SECONDS)
        self.admin = {"x-api-key": (server.data_dir / "api-key").read_text().strip()}
        self.tokens: dict[str, dict[str, str]] = {}

    def person(self, name: str, shown: str = "") -> str:
        made = self.ask("POST", "/auth/register", username=name, password=PASSWORD, display_name=shown)
        self.tokens[name] = {"authorization": f"Bearer {made['access_token']}"}
        return name

    def ask(self, method: str, path: str, who: str = "", **body: Any) -> Any:
        headers = {"admin": self.admin, "": {}, **self.tokens}[who]
        answer = self.api.request(method, path, headers=headers, json=body)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def fill(self) -> None:
        """Something for every page to show."""
        for name, shown in (("mira", "Mira Okafor"), ("jonas", "Jonas Lindqvist"), ("evil", EVIL[:190])):
            self.person(name, shown)
        self.post = self.ask("POST", "/posts", "jonas", content=TAGGED)["id"]
        self.ask("POST", f"/posts/{self.post}/comments", "mira", content=EVIL)
        self.ask("POST", f"/posts/{self.post}/like", "mira")
        self.ask("POST", "/posts", "evil", content=EVIL)
        self.ask("PATCH", "/users/evil", "evil", bio=EVIL, links=EVIL)
        self.ask("POST", "/users/jonas/follow", "mira")
        self.article = self.ask(
            "POST",
            "/articles",
            "jonas",
            title="A field guide to paving",
            link="https://example.org/a",
            groups=["cities"],
        )["id"]
        self.ask("POST", "/articles", "evil", title=EVIL[:290], link="https://example.org/%3Cscript%3E")
        self.challenge = self.ask(
            "POST", "/challenges", "jonas", title="Walk before breakfast", category=1, is_public=True, duration=21
        )["id"]
        self.ask("POST", f"/challenges/{self.challenge}/join", "jonas")
        self.ask("POST", f"/challenges/{self.challenge}/posts", "jonas", text="Rain, went anyway.")
        odd = self.ask("POST", "/challenges", "evil", title=EVIL[:190], category=5, is_public=True, duration=9)["id"]
        self.ask("POST", f"/challenges/{odd}/join", "evil")
        self.ask("POST", f"/challenges/{odd}/posts", "evil", text=EVIL)
        self.ask("PUT", "/analytics/events/odd", "admin", title=EVIL[:190], sessions=[EVIL[:100].replace("#", "")])
        self.ask("PUT", "/analytics/events/harvest", "admin", title="Harvest night", sessions=["Main stage"])
        self.item = self.offer("Brass bell", 1)
        self.offer("Wool blanket", 20)

    def offer(self, name: str, qty: int) -> int:
        made = self.ask(
            "POST", "/shop/items", "admin", name=name, description="Warm.\n\n" + EVIL, price="19.90", qty=qty
        )
        return int(made["id"])


@contextmanager
def community(data_dir: Path) -> Iterator[Community]:
    server = Serving(data_dir, "serve", "--empty", PLAZA_RATE_LIMITS="off")
    try:
        made = Community(server.wait_for("Ctrl-C stops it."))
        made.fill()
        yield made
        made.api.close()
    finally:
        server.process.kill()
        server.process.wait()


class Reader:
    """Somebody's browser window. Whatever it complains about, or asks of others, is noted."""

    def __init__(self, browser: Browser, url: str, **options: Any) -> None:
        self.url = url
        self.context: BrowserContext = browser.new_context(base_url=url, **options)
        self.context.set_default_timeout(TIME_LIMIT_MS)
        self.page: Page = self.context.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(f"it says {dialog.message}"))
        self.page.on(
            "console", lambda line: self.complaints.append(line.text) if line.type in ("error", "warning") else None
        )

    def sign_up(self, name: str) -> Page:
        self.page.goto("/app/sign-up")
        self.page.get_by_label("Name").fill(name)
        self.page.get_by_label("Password").fill(PASSWORD)
        self.page.get_by_role("button", name="Join").click()
        self.page.wait_for_url(f"{self.url}/app")
        return self.page

    def sign_in(self, name: str) -> Page:
        self.page.goto("/app/sign-in")
        self.page.get_by_label("Name").fill(name)
        self.page.get_by_label("Password").fill(PASSWORD)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_url(f"{self.url}/app")
        return self.page

    def end(self) -> None:
        """Close it, and see that all was well."""
        self.context.close()
        assert self.complaints == [], "neither an error, nor a breach of the policy, nor a script of somebody's"
        strange = [url for url in self.requests if not url.startswith((self.url, "data:", "about:"))]
        assert strange == [], "nothing is fetched from elsewhere"
