"""A whole Plaza that is served over HTTP, and a plain client that is the other service."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from plaza.app import DOMAINS, Plaza
from plaza.core.invariants import NOT_COMPARED
from plaza.core.keyspace import Key
from plaza.core.roles import Role
from plaza.keyspace.audit import REPAIR, AuditReport, Audits
from tests.http_servers import all_of_plaza, serving
from tests.servers import Cluster, Server
from tests.timeouts import TIME_LIMIT_SECONDS


@dataclass
class PlazaBesideOthers:
    """Plaza over HTTP, beside another service that has a Redis client and the documents."""

    plaza: Plaza
    http: httpx.AsyncClient
    client: Any

    def owned(self, id: str | int) -> str:
        """Return an id as it is written in key names: in braces on a cluster."""
        return f"{{{id}}}" if self.plaza.core.valkey.clustered else str(id)

    def headers(self, username: str, role: Role = "user") -> dict[str, str]:
        return {"authorization": f"Bearer {self.plaza.core.auth.issue(username, role)}"}

    @property
    def api_key(self) -> dict[str, str]:
        return {"x-api-key": self.plaza.core.settings.secret("api_key")}

    async def get(self, path: str, username: str = "", **headers: str) -> Any:
        """Return the JSON of a route, as a user or with the API key."""
        sent = {**(self.headers(username) if username else self.api_key), **headers}
        answer = await self.http.get(path, headers=sent)
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text}"
        return answer.json()

    async def send(self, method: str, path: str, username: str, body: Any = None) -> httpx.Response:
        return await self.http.request(method, path, headers=self.headers(username), json=body)

    async def repair(self) -> AuditReport:
        """Run `plaza audit --repair`."""
        return _compared(await self.plaza.get(Audits).run(REPAIR))

    async def audit(self) -> AuditReport:
        return _compared(await self.plaza.get(Audits).run())

    async def documented_keys(self) -> dict[str, Any]:
        """Return every key that a document describes, with its content."""
        clustered = self.plaza.core.valkey.clustered
        names = await (self.client.keys("*", target_nodes="primaries") if clustered else self.client.keys("*"))
        return {name: await content_of(self.client, name) for name in sorted(names) if is_documented(name)}


def _compared(report: AuditReport) -> AuditReport:
    """Return a report without what waits for a worker, which does not run any more."""
    report.groups, report.left = (
        [group for group in groups if group.rule != NOT_COMPARED] for groups in (report.groups, report.left)
    )
    return report


async def content_of(client: Any, name: str) -> Any:
    """Return everything that a key contains."""
    kind = await client.type(name)
    if kind == "hash":
        return await client.hgetall(name)
    if kind == "set":
        return await client.smembers(name)
    if kind == "list":
        return await client.lrange(name, 0, -1)
    if kind == "zset":
        return dict(await client.zrange(name, 0, -1, withscores=True))
    return await client.get(name)


def assert_kept(after: dict[str, Any], before: dict[str, Any]) -> None:
    """Check that documented keys still have their content. Scores that fall with time may differ by 2%.

    Keys with a lifetime may have ended meanwhile: on a busy machine a test takes longer than a minute.
    """
    missing = {name for name in before.keys() - after.keys() if not lives_briefly(name)}
    assert not missing, missing
    for name in before.keys() & after.keys():
        expected = pytest.approx(before[name], rel=0.02) if name.endswith(":ranked") else before[name]
        assert after[name] == expected, name


def assert_unchanged(after: dict[str, Any], before: dict[str, Any]) -> None:
    """As `assert_kept`, and no key is new."""
    assert_kept(after, before)
    new = {name for name in after.keys() - before.keys() if not lives_briefly(name)}
    assert not new, new


def is_documented(name: str) -> bool:
    key = _declared(name)
    return key is not None and bool(key.document)


def lives_briefly(name: str) -> bool:
    key = _declared(name)
    return key is not None and key.ttl_seconds is not None


def _declared(name: str) -> Key | None:
    return next((match.key for domain in DOMAINS if (match := domain.catalogue.match(name))), None)


@contextlib.asynccontextmanager
async def plaza_beside_others(place: Server | Cluster, data_dir: Path, client: Any) -> AsyncIterator[PlazaBesideOthers]:
    async with (
        all_of_plaza(place, data_dir) as plaza,
        serving(plaza.app) as url,
        httpx.AsyncClient(base_url=url, timeout=TIME_LIMIT_SECONDS, verify=False) as http,
    ):
        yield PlazaBesideOthers(plaza, http, client)
