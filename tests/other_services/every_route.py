"""A running Plaza with a sample community, and a request to every route that reads."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import redis.asyncio

from plaza.app import DOMAINS, Plaza
from plaza.core.http.access import Access
from plaza.core.http.routes import Route
from plaza.core.keyspace import Key
from plaza.http_application import route_groups
from plaza.sessions.sign_in import SignIn
from tests.http_servers import all_of_plaza, serving
from tests.keyspace.audit.sample_community import SampleCommunity, load
from tests.servers import Server
from tests.timeouts import TIME_LIMIT_SECONDS

# Streams without an end, and files.
EVENT_STREAM = "text/event-stream"
SKIPPED = re.compile(r"/stream|^/docs|^/(open|async)api|/assets/|/static/")

FOR_ADMINS = (Access.ADMIN, Access.API_KEY, Access.EVENTS)


@dataclass(frozen=True)
class Sent:
    """A request of a kind of caller: `user`, `server`, `page` or `operator`."""

    method: str
    path: str
    caller: str
    body: Any = None


@dataclass
class RunningPlaza:
    plaza: Plaza
    community: SampleCommunity
    http: httpx.AsyncClient
    redis: Any  # a plain client, which gives bytes
    callers: dict[str, dict[str, str]]  # the headers of each kind of caller

    async def failures(self, requests: Iterable[Sent]) -> list[str]:
        """Send requests. Returns the responses that are server errors or end in the middle."""
        found = []
        for sent in requests:
            try:
                answer = await self.http.request(
                    sent.method, sent.path, headers=self.callers[sent.caller], json=sent.body, follow_redirects=False
                )
            except httpx.HTTPError as error:
                found.append(f"{sent}: {error!r}")
                continue
            if answer.status_code >= 500:
                found.append(f"{sent}: {answer.status_code} {answer.text[:200]}")
        return found

    def reads(self) -> list[Sent]:
        """Return a request of every GET route, with ids of the sample community in its path."""
        return [
            Sent("GET", path, _caller(route))
            for group in route_groups()
            for route in group.routes
            if route.method == "GET" and not SKIPPED.search(route.template) and route.media_type != EVENT_STREAM
            for path in _paths(route.template, self.community)
        ]

    def writes(self) -> list[Sent]:
        """Return requests of a user that change what other services wrote too."""
        community = self.community
        post, article, item = community.posts[0], community.articles[0], community.items[0]
        requests: list[tuple[str, str, Any]] = [
            ("POST", f"/posts/{post}/like", None), ("DELETE", f"/posts/{post}/like", None),
            ("POST", f"/posts/{post}/bookmark", None), ("POST", f"/posts/{post}/comments", {"content": "Indeed"}),
            ("PATCH", f"/posts/{post}", {"content": "Good evening #plaza"}), ("POST", "/users/cleo/follow", None),
            ("DELETE", "/users/cleo/follow", None), ("PATCH", "/users/ana", {"display_name": "Ana"}),
            ("POST", "/posts", {"content": "Hello #plaza"}), ("DELETE", f"/posts/{community.posts[1]}", None),
            ("PUT", f"/articles/{article}/vote", {"direction": "up"}),
            ("POST", "/articles", {"title": "New", "link": "https://example.com/new", "groups": ["news"]}),
            ("PUT", f"/shop/cart/items/{item}", {"qty": 2}), ("POST", "/shop/checkout", None),
            ("POST", "/analytics/events/E1/heartbeat", {"location": "web", "session_id": "S1"}),
            ("POST", "/analytics/events/E1/leave", {"location": "web", "session_id": "S1"}),
        ]  # fmt: skip
        return [
            Sent(method, path, "page" if path.startswith("/shop") else "user", body) for method, path, body in requests
        ]


async def _headers(plaza: Plaza, community: SampleCommunity) -> dict[str, dict[str, str]]:
    operator = await plaza.get(SignIn).admit(None, "eli")
    return {
        "user": {"authorization": f"Bearer {plaza.core.auth.issue('ana', 'user')}"},
        "server": {"x-api-key": plaza.core.settings.secret("api_key")},
        "page": {"cookie": f"plaza={community.token}", "accept": "text/html"},
        "operator": {"cookie": f"plaza={operator.token}", "accept": "text/html"},
    }


def _caller(route: Route) -> str:
    if route.template.startswith(("/app", "/shop")):
        return "operator" if route.access in FOR_ADMINS else "page"
    return "server" if route.access in FOR_ADMINS else "user"


def _paths(template: str, community: SampleCommunity) -> list[str]:
    ids: dict[str, list[Any]] = {
        "username": ["ana", "ben"], "group": ["news"], "event": ["E1"], "session": ["S1"], "tag": ["plaza"],
        "item": community.items, "family": ["post"], "side": ["followers"], "name": ["news"],
    }  # fmt: skip
    names = re.findall(r"{(\w+)}", template)
    choices = {name: ids.get(name) or _ids_by_noun(template, community) for name in names}
    paths = []
    for i in range(max([1, *(len(values) for values in choices.values())])):
        path = template
        for name, values in choices.items():
            path = path.replace("{" + name + "}", str(values[i % len(values)]))
        paths.append(path)
    return paths


def _ids_by_noun(template: str, community: SampleCommunity) -> list[Any]:
    for word, values in (
        ("challenges", [*community.challenges, *community.challenge_posts]), ("articles", community.articles),
        ("shop", community.items), ("posts", community.posts), ("users", ["ana"]), ("comments", community.comments),
    ):  # fmt: skip
        if word in template:
            return list(values)
    return ["1"]


def documented_key(name: str) -> Key | None:
    """Return the declaration of a key that a document describes. `comment:<id>` is documented by its list."""
    found = next((match for domain in DOMAINS if (match := domain.catalogue.match(name))), None)
    return found.key if found and (found.key.document or found.key.pattern == "comment:<comment>") else None


@contextlib.asynccontextmanager
async def plaza_with_community(server: Server, data_dir: Path) -> AsyncIterator[RunningPlaza]:
    client = redis.asyncio.Redis(port=server.port)
    async with (
        all_of_plaza(server, data_dir) as plaza,
        serving(plaza.app) as url,
        httpx.AsyncClient(base_url=url, timeout=TIME_LIMIT_SECONDS) as http,
    ):
        community = await load(plaza)
        yield RunningPlaza(plaza, community, http, client, await _headers(plaza, community))
    await client.aclose()
