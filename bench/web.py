"""What a page costs beside the JSON route that tells the same: CPU of the server's process, for the same people.

A page may cost twice its route. The community is small, as it is for most who look at one; each request is somebody
else's, with a session of their own, so what is kept for one helps nobody else.

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
from tests.processes import Serving

PEOPLE, POSTS, ARTICLES, CHALLENGES, ITEMS = 40, 120, 60, 12, 30
REQUESTS, ROUNDS = 2_560, 3
WORDS = ["morning", "coffee", "river", "night", "garden", "stone", "paper", "light", "music", "walk"]


@dataclass(frozen=True, slots=True)
class Person:
    token: str
    cookie: str

    def asks(self, path: str) -> bytes:
        return request("GET", path, b"", self.cookie if path.startswith(("/app", "/shop")) else self.token)


class Community:
    """People with tokens and sessions, and something to look at."""

    def __init__(self, url: str, key: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=30)
        self._key = {"x-api-key": key}
        self.people: list[Person] = []

    def _ask(self, method: str, path: str, body: Any, **headers: str) -> Any:
        answer = self._http.request(method, path, json=body, headers=headers)
        assert answer.is_success, answer.text
        return answer.json()

    def fill(self) -> None:
        tokens = []
        for number in range(PEOPLE):
            name = {"username": f"u{number}", "password": "correct horse"}
            token = self._ask("POST", "/auth/register", {**name, "display_name": f"User {number}"})["access_token"]
            tokens.append({"authorization": f"Bearer {token}"})
            answer = self._http.post("/shop/login", json=name)
            cookie = f"cookie: plaza={answer.cookies['plaza']}"
            self._http.cookies.clear()
            self.people.append(Person(f"authorization: Bearer {token}", cookie))
        for number in range(POSTS):
            text = " ".join(WORDS[(number + i * 7) % len(WORDS)] for i in range(20))
            made = self._ask("POST", "/posts", {"content": f"{text} #river"}, **tokens[number % PEOPLE])
            for i in range(number % 5):
                self._ask("POST", f"/posts/{made['id']}/like", {}, **tokens[(number + i) % PEOPLE])
            self.post = made["id"]
        for number in range(10):
            self._ask("POST", f"/posts/{self.post}/comments", {"content": "Indeed."}, **tokens[number])
        for i, token in enumerate(tokens):
            for step in (1, 2, 3, 5, 8):
                self._ask("POST", f"/users/u{(i + step) % PEOPLE}/follow", {}, **token)
        for number in range(ARTICLES):
            article = {"title": f"An article on {WORDS[number % 10]}", "link": f"https://example.org/{number}"}
            self._ask("POST", "/articles", {**article, "groups": [WORDS[number % 10]]}, **tokens[number % PEOPLE])
        for number in range(CHALLENGES):
            challenge = {"title": f"Run {number}", "category": 1 + number % 5, "is_public": True, "duration": 30}
            made = self._ask("POST", "/challenges", challenge, **tokens[number])
            for step in (0, 1, 2):
                own = tokens[(number + step) % PEOPLE]
                self._ask("POST", f"/challenges/{made['id']}/join", {}, **own)
                self._ask("POST", f"/challenges/{made['id']}/posts", {"text": "Done for today."}, **own)
            self.challenge = made["id"]
        self._ask("POST", "/challenges/roll", {}, **self._key)
        for number in range(ITEMS):
            item = {"name": f"Blanket {number}", "description": "Warm.", "price": "89.00", "qty": 20}
            self.item = self._ask("POST", "/shop/items", item, **self._key)["id"]
        for person in self.people:
            cookie = person.cookie.removeprefix("cookie: ")
            self._ask("PUT", f"/shop/cart/items/{self.item}", {"qty": 1}, cookie=cookie)

    def pairs(self) -> dict[str, tuple[list[str], str]]:
        """The routes and the page of the same."""
        post, challenge = f"/posts/{self.post}", f"/challenges/{self.challenge}"
        return {
            "explore": (["/feed/explore"], "/app"),
            "following": (["/feed/following"], "/app/following"),
            "tag, ranked": (["/feed/hashtag/river/ranked"], "/app/tags/river/ranked"),
            "person and posts": (["/users/u3", "/users/u3/posts"], "/app/people/u3"),
            "post and comments": ([post, f"{post}/comments"], f"/app{post}"),
            "articles": (["/articles"], "/app/articles"),
            "a group": (["/groups/river/articles"], "/app/groups/river"),
            "challenges": (["/challenges"], "/app/challenges"),
            "one, and its posts": ([challenge, f"{challenge}/posts"], f"/app{challenge}"),
            "recommended": (["/challenges/recommendations"], "/app/challenges/for-you"),
            "items": (["/shop/items"], "/app/shop"),
            "popular items": (["/shop/items/popular"], "/app/shop/popular"),
            "a cart": (["/shop/cart"], "/app/shop/cart"),
            "an item": ([f"/shop/items/{self.item}"], f"/app/shop/items/{self.item}"),
        }


@contextmanager
def running() -> Iterator[tuple[Community, int, psutil.Process]]:
    with tempfile.TemporaryDirectory() as folder:
        server = Serving(Path(folder) / "var", "serve", "--empty", PLAZA_RATE_LIMITS="off")
        try:
            server.wait_for("Ctrl-C stops it.")
            community = Community(server.url, (server.data_dir / "api-key").read_text().strip())
            community.fill()
            yield community, int(server.url.rpartition(":")[2]), psutil.Process(server.process.pid)
        finally:
            server.stop()


def main() -> None:
    with running() as (community, port, process):
        print(f"Pages beside their JSON routes, {REQUESTS} requests on 64 connections, best of {ROUNDS}")
        print(f"  {'':20}{'JSON µs':>10}{'page µs':>10}{'page/JSON':>11}")

        def cost_us(path: str) -> float:
            asked = [person.asks(path) for person in community.people]
            return measure(port, process, asked, b"HTTP/1.1 200", REQUESTS).cpu_us

        for what, (routes, page) in community.pairs().items():
            paths = [*routes, page]
            # In turn, so that a busy minute of the machine falls on all of them. The first round warms up.
            rounds = [[cost_us(path) for path in paths] for _ in range(ROUNDS + 1)]
            *json, html = (min(costs) for costs in zip(*rounds[1:], strict=True))
            print(f"  {what:20}{sum(json):10.0f}{html:10.0f}{html / sum(json):10.2f}×", flush=True)


if __name__ == "__main__":
    main()
