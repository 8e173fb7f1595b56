"""Plaza with a worker and a real mail server, on one server or on a cluster."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from plaza.app import Plaza, running
from plaza.core.keyspace import Layout, use_layout
from plaza.core.settings import Settings
from tests.databases import with_tables
from tests.http_servers import client_of
from tests.servers import Cluster, Server
from tests.smtp import Mailbox, smtp_server
from tests.waiting import eventually

PASSWORD = "correct horse battery"


# For a test whose commands touch keys of several owners: it also runs on a cluster.
ON_BOTH = pytest.mark.parametrize("place", ["server", "cluster"], indirect=True)


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Server | Cluster:
    """One server, or a cluster for tests marked `ON_BOTH`."""
    found: Server | Cluster = request.getfixturevalue(getattr(request, "param", "server"))
    return found


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    with smtp_server() as mailbox:
        yield mailbox


@pytest.fixture
async def plaza(place: Server | Cluster, mailbox: Mailbox, tmp_path: Path) -> AsyncIterator[Plaza]:
    settings = Settings(
        data_dir=with_tables(tmp_path),
        valkey_url=place.url,
        rate_limits=False,
        smtp_url=f"smtp://127.0.0.1:{mailbox.port}?from=plaza@example.org",
        public_url="https://plaza.example",
    )
    async with running(settings) as plaza:
        working = asyncio.create_task(plaza.worker.run())
        try:
            yield plaza
        finally:
            working.cancel()
            await asyncio.wait([working])
    use_layout(Layout.PLAIN)


@pytest.fixture
async def http(plaza: Plaza) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(plaza.app) as client:
        yield client


@dataclass
class Account:
    """A registered user with a client, and the mails that arrive."""

    name: str
    http: httpx.AsyncClient
    mailbox: Mailbox
    token: str

    async def send(self, path: str, status: int = 200, **body: Any) -> Any:
        response = await self.http.post(path, json=body, headers={"authorization": f"Bearer {self.token}"})
        assert response.status_code == status, response.text
        return response.json()

    async def delete(self, path: str, **body: Any) -> None:
        headers = {"authorization": f"Bearer {self.token}"}
        response = await self.http.request("DELETE", path, json=body, headers=headers)
        assert response.is_success, response.text

    async def next_link(self) -> str:
        """Wait for a mail with a link, return the token in it and empty the mailbox."""

        def tokens() -> list[str]:
            return [t for mail in self.mailbox.mails for t in re.findall(r"token=([\w-]+)", mail.get_content())]

        await eventually(tokens)
        token = tokens()[-1]
        self.mailbox.mails.clear()
        return token

    async def verify(self, email: str) -> None:
        await self.send("/auth/email", 202, email=email, password=PASSWORD)
        await self.send("/auth/email/verify", token=await self.next_link())


@pytest.fixture
async def ana(http: httpx.AsyncClient, mailbox: Mailbox) -> Account:
    response = await http.post("/auth/register", json={"username": "ana", "password": PASSWORD})
    assert response.status_code == 201
    return Account("ana", http, mailbox, response.json()["access_token"])
