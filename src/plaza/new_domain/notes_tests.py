"""Tests of notes on a real Valkey, which Plaza starts for each test."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx

import plaza
from plaza.app import DOMAINS, Plaza
from plaza.core.auth import Actor
from plaza.keyspace.audit import Audits
from plaza.new_domain.notes.domain import DOMAIN
from plaza.new_domain.notes.keys import NOTES
from plaza.social.account_deletion import AccountDeletion
from plaza.social.account_renaming import AccountRenaming

Test = Callable[[Plaza, httpx.AsyncClient], Awaitable[None]]


def run(folder: Path, test: Test) -> None:
    """Run a test with a Plaza that has the domain, and a client that is signed in as ana."""

    async def with_plaza() -> None:
        async with plaza.running(plaza.Settings(data_dir=folder), domains=[*DOMAINS, DOMAIN]) as running:
            transport = httpx.ASGITransport(app=running.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                account = {"username": "ana", "password": "correct horse"}
                registered = (await client.post("/auth/register", json=account)).json()
                client.headers["authorization"] = f"Bearer {registered['access_token']}"
                await test(running, client)

    asyncio.run(with_plaza())


def test_an_entry_is_added_listed_and_removed(tmp_path: Path) -> None:
    async def test(running: Plaza, client: httpx.AsyncClient) -> None:
        added = await client.post("/notes", json={"text": "Buy milk"})
        assert added.status_code == 201, added.text
        assert (await client.get("/notes")).json() == {"notes": [added.json()]}
        assert (await client.post("/notes", json={"text": ""})).json()["field"] == "text"
        assert (await client.delete(f"/notes/{added.json()['id']}")).status_code == 204
        assert (await client.delete(f"/notes/{added.json()['id']}")).status_code == 404
        assert (await running.get(Audits).run()).clean

    run(tmp_path, test)


def test_entries_belong_to_the_account(tmp_path: Path) -> None:
    async def test(running: Plaza, client: httpx.AsyncClient) -> None:
        added = (await client.post("/notes", json={"text": "Buy milk"})).json()
        exported = (await client.get("/users/me/export")).json()
        assert exported["notes"]["notes"] == {added["id"]: "Buy milk"}
        await running.get(AccountRenaming).rename("ana", "anna")
        valkey = running.core.valkey
        assert await valkey.call("HGETALL", NOTES("anna")) == {added["id"]: "Buy milk"}
        await running.get(AccountDeletion).delete(Actor("anna", "user"), "anna")
        assert [await valkey.call("EXISTS", NOTES(name)) for name in ("ana", "anna")] == [0, 0]

    run(tmp_path, test)
