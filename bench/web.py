"""CPU of a page compared with its JSON route, in the server process, for the same users.

Each request is by another user with an own session, so per-user caches do not help.

    python -m bench web
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from bench.load import measure, request
from tests.processes import ServerProcess

USERS, POSTS, ARTICLES, CHALLENGES, ITEMS = 40, 120, 60, 12, 30
REQUESTS, ROUNDS = 2_560, 3
WORDS = ["morning", "coffee", "river", "night", "garden", "stone", "paper", "light", "music", "walk"]


@dataclass(frozen=True, slots=True)
class BenchUser:
    token: str
    cookie: str

    def request_for(self, path: str) -> bytes:
        return request("GET", path, b"", self.cookie if path.startswith(("/app", "/shop")) else self.token)


class PagesCommunity:
    """Users with tokens and sessions, and content for every page."""

    def __init__(self, url: str, key: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=30)
        self._key = {"x-api-key": key}
        self.users: list[BenchUser] = []

    def _request(self, method: str, path: str, body: Any, **headers: str) -> Any:
        response = self._http.request(method, path, json=body, headers=headers)
        assert response.is_success, response.text
        return response.json()

    def fill(self) -> None:
        tokens = []
        for number in range(USERS):
            name = {"username": f"u{number}", "password": "correct horse"}
            token = self._request("POST", "/auth/register", {**name, "display_name": f"User {number}"})["access_token"]
            tokens.append({"authorization": f"Bearer {token}"})
            response = self._http.post("/shop/login", json=name)
            cookie = f"cookie: plaza={response.cookies['plaza']}"
            self._http.cookies.clear()
            self.users.append(BenchUser(f"authorization: Bearer {token}", cookie))
        for number in range(POSTS):
            text = " ".join(WORDS[(number + i * 7) % len(WORDS)] for i in range(20))
            created = self._request("POST", "/posts", {"content": f"{text} #river"}, **tokens[number % USERS])
            for i in range(number % 5):
                self._request("POST", f"/posts/{created['id']}/like", {}, **tokens[(number + i) % USERS])
            self.post = created["id"]
        for number in range(10):
            self._request("POST", f"/posts/{self.post}/comments", {"content": "Indeed."}, **tokens[number])
        for i, token in enumerate(tokens):
            for step in (1, 2, 3, 5, 8):
                self._request("POST", f"/users/u{(i + step) % USERS}/follow", {}, **token)
        for number in range(ARTICLES):
            article = {"title": f"An article on {WORDS[number % 10]}", "link": f"https://example.org/{number}"}
            self._request("POST", "/articles", {**article, "groups": [WORDS[number % 10]]}, **tokens[number % USERS])
        for number in range(CHALLENGES):
            challenge = {"title": f"Run {number}", "category": 1 + number % 5, "is_public": True, "duration": 30}
            created = self._request("POST", "/challenges", challenge, **tokens[number])
            for step in (0, 1, 2):
                member = tokens[(number + step) % USERS]
                self._request("POST", f"/challenges/{created['id']}/join", {}, **member)
                self._request("POST", f"/challenges/{created['id']}/posts", {"text": "Done for today."}, **member)
            self.challenge = created["id"]
        self._request("POST", "/challenges/roll", {}, **self._key)
        for number in range(ITEMS):
            item = {"name": f"Blanket {number}", "description": "Warm.", "price": "89.00", "qty": 20}
            self.item = self._request("POST", "/shop/items", item, **self._key)["id"]
        for user in self.users:
            cookie = user.cookie.removeprefix("cookie: ")
            self._request("PUT", f"/shop/cart/items/{self.item}", {"qty": 1}, cookie=cookie)

    def pairs(self) -> dict[str, tuple[list[str], str]]:
        """Each page with the JSON routes that return the same content."""
        post, challenge = f"/posts/{self.post}", f"/challenges/{self.challenge}"
        return {
            "explore": (["/feed/explore"], "/app"),
            "following": (["/feed/following"], "/app/following"),
            "hashtag, ranked": (["/feed/hashtag/river/ranked"], "/app/tags/river/ranked"),
            "user and posts": (["/users/u3", "/users/u3/posts"], "/app/people/u3"),
            "post and comments": ([post, f"{post}/comments"], f"/app{post}"),
            "articles": (["/articles"], "/app/articles"),
            "group": (["/groups/river/articles"], "/app/groups/river"),
            "challenges": (["/challenges"], "/app/challenges"),
            "challenge and posts": ([challenge, f"{challenge}/posts"], f"/app{challenge}"),
            "recommendations": (["/challenges/recommendations"], "/app/challenges/for-you"),
            "items": (["/shop/items"], "/app/shop"),
            "popular items": (["/shop/items/popular"], "/app/shop/popular"),
            "cart": (["/shop/cart"], "/app/shop/cart"),
            "item": ([f"/shop/items/{self.item}"], f"/app/shop/items/{self.item}"),
        }


@contextmanager
def running() -> Iterator[tuple[PagesCommunity, int, psutil.Process]]:
    with tempfile.TemporaryDirectory() as folder:
        server = ServerProcess(Path(folder) / "var", "serve", "--empty", PLAZA_RATE_LIMITS="off")
        try:
            server.wait_for("Ctrl-C stops it.")
            community = PagesCommunity(server.url, (server.data_dir / "api-key").read_text().strip())
            community.fill()
            yield community, int(server.url.rpartition(":")[2]), psutil.Process(server.process.pid)
        finally:
            server.stop()


def main() -> None:
    with running() as (community, port, process):
        print(f"Pages and their JSON routes, {REQUESTS} requests on 64 connections, best of {ROUNDS}")
        print(f"  {'':20}{'JSON µs':>10}{'page µs':>10}{'page/JSON':>11}")

        def cost_us(path: str) -> float:
            requests = [user.request_for(path) for user in community.users]
            return measure(port, process, requests, b"HTTP/1.1 200", REQUESTS).cpu_us

        for name, (routes, page) in community.pairs().items():
            paths = [*routes, page]
            # Alternating, so that load on the machine affects all of them. The first round warms up.
            rounds = [[cost_us(path) for path in paths] for _ in range(ROUNDS + 1)]
            *json, html = (min(costs) for costs in zip(*rounds[1:], strict=True))
            print(f"  {name:20}{sum(json):10.0f}{html:10.0f}{html / sum(json):10.2f}×", flush=True)


if __name__ == "__main__":
    main()
