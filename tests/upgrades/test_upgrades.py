"""A new release starts on the data of the previous one, replaces it under load, and refuses data of a newer one."""

from __future__ import annotations

import asyncio
import sqlite3
import tarfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from plaza.core.functions import GENERATION
from plaza.core.sql_migrations import migration_folders
from tests.postgres import Postgres
from tests.processes import ServerProcess, plaza, serving
from tests.reverse_proxies import HOST, ReverseProxy, running_proxy
from tests.servers import Server
from tests.timeouts import TIME_LIMIT_SECONDS
from tests.upgrades.write_data import ARCHIVE, PASSWORD
from tests.waiting import eventually


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """The data directory of the previous release, after it was stopped."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path / "var", filter="data")
    return tmp_path / "var"


def revisions(data_dir: Path) -> set[str]:
    with closing(sqlite3.connect(data_dir / "plaza.sqlite")) as sql:
        return {row[0] for row in sql.execute("SELECT version_num FROM alembic_version")}


def test_the_data_of_the_previous_release_is_used_by_this_one(data_dir: Path) -> None:
    heads = {max("_".join(file.stem.split("_")[:2]) for file in f.glob("[!_]*.py")) for f in migration_folders()}
    assert len(heads - revisions(data_dir)) > 3, "the archive is of a release that had fewer tables"
    with serving(data_dir) as server, httpx.Client(base_url=server.url, timeout=TIME_LIMIT_SECONDS) as http:
        assert revisions(data_dir) == heads
        with closing(redis.Redis(unix_socket_path=str(data_dir / "valkey.sock"), decode_responses=True)) as client:
            (library,) = _social_libraries(client)
            assert f"_g{GENERATION}_" in library, "the old one is gone: it stores viewers in another form"

        # As docs/upgrades.md says: what this release derives and the previous one did not have.
        assert plaza(data_dir, "search", "rebuild").returncode == 0
        repaired = plaza(data_dir, "audit", "--repair")
        assert repaired.returncode == 0, repaired.stdout
        assert "No findings." in repaired.stdout
        _read_what_users_had(http)
        assert server.stop() == 0


def _read_what_users_had(http: httpx.Client) -> None:
    signed_in = http.post("/auth/login", json={"username": "ana", "password": PASSWORD}).raise_for_status().json()
    http.headers["authorization"] = f"Bearer {signed_in['access_token']}"

    def get(path: str) -> Any:
        return http.get(path).raise_for_status().json()

    ana = get("/users/ana")
    assert (ana["followerCount"], ana["postCount"]) == (1, 1)
    (shown,) = get("/feed/explore")["posts"]
    post = shown["post"]
    assert (post["content"], post["likesCount"], post["commentsCount"]) == ("Good morning #plaza", 1, 1)
    (comment,) = get(f"/posts/{post['id']}/comments")["comments"]
    assert (comment["content"], comment["username"]) == ("Hello @ana", "cleo")
    (article,) = get("/groups/code/articles")["articles"]
    assert (article["title"], article["votes"]) == ("Lua", 1)
    (challenge,) = get("/challenges")["challenges"]
    (written,) = get(f"/challenges/{challenge['id']}/posts")["posts"]
    assert (written["text"], written["username"]) == ("Five kilometres", "ben")
    http.post("/shop/login", json={"username": "ana", "password": PASSWORD}).raise_for_status()
    (order,) = get("/shop/orders")["orders"]
    assert order["total"] == "15.00"
    assert get("/shop/items")["items"][0]["qty"] == 8
    # What the previous release could not do works for its data.
    assert get("/search?q=morning&type=posts")["posts"][0]["id"] == post["id"]
    reply = http.post(f"/posts/{post['id']}/comments", json={"content": "Hi", "reply_to": comment["id"]})
    assert reply.raise_for_status().json()["reply_to"] == comment["id"]


def test_tables_of_a_newer_release_stop_the_start_and_stay_as_they_are(data_dir: Path) -> None:
    with closing(sqlite3.connect(data_dir / "plaza.sqlite")) as sql, sql:
        sql.execute("UPDATE alembic_version SET version_num = 'shop_9999' WHERE version_num = 'shop_0001'")
    before = revisions(data_dir)
    refused = plaza(data_dir, "serve")
    assert refused.returncode == 2, "so that systemd does not restart it"
    (line,) = refused.stderr.splitlines()
    assert "The database is newer than this Plaza" in line
    assert "shop_9999" in line
    assert "Start the version that created it, or restore an older backup." in line
    assert revisions(data_dir) == before


@asynccontextmanager
async def served(folder: Path, port: int, **settings: str) -> AsyncIterator[ServerProcess]:
    """Run `plaza serve` on a port, and stop it as an operator does."""
    server = ServerProcess(folder, nohup=False, python=None, PLAZA_PORT=str(port), **settings)
    try:
        await asyncio.to_thread(server.wait_for, "Ctrl-C stops it.")
        yield server
        assert await asyncio.to_thread(server.stop) == 0
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()


class ConstantLoad:
    """Clients that read and write until they are told to stop. Counts responses, and keeps what failed."""

    def __init__(self, proxy: ReverseProxy, token: str, post: str) -> None:
        self.responses = 0
        self.failed: list[str] = []
        self.is_done = False
        self._proxy, self._token, self._post = proxy, token, post

    async def run(self) -> None:
        headers = {"host": HOST, "authorization": f"Bearer {self._token}"}
        url = f"https://127.0.0.1:{self._proxy.https}"
        paths = (("GET", "/feed/explore"), ("POST", f"/posts/{self._post}/like"), ("GET", "/articles"))
        requests = (*paths, ("DELETE", f"/posts/{self._post}/like"), ("POST", "/posts"))
        async with httpx.AsyncClient(base_url=url, headers=headers, verify=False, timeout=TIME_LIMIT_SECONDS) as http:
            while not self.is_done:
                for method, path in requests:
                    body = {"content": "Under load"} if path == "/posts" else None
                    answer = await http.request(method, path, json=body)
                    self.responses += 1
                    if not answer.is_success:
                        self.failed.append(f"{method} {path}: {answer.status_code} {answer.text}")


async def test_a_new_release_replaces_the_old_one_under_load_without_a_failed_request(
    server: Server, postgres: Postgres, tmp_path: Path
) -> None:
    # The old release differs in its Lua libraries, as every release does.
    (tmp_path / "older").mkdir()
    change = "import plaza.core.functions as functions\nfunctions.PRELUDE += '-- an older release\\n'\n"
    (tmp_path / "older" / "sitecustomize.py").write_text(change)
    async with postgres.database() as database, AsyncExitStack() as stack:
        settings = {
            "PLAZA_VALKEY_URL": server.url,
            "PLAZA_DATABASE_URL": database,
            "PLAZA_JWT_SECRET": "s" * 32,
            "PLAZA_API_KEY": "k" * 32,
            "PLAZA_DATA_KEY": "d" * 64,
            "PLAZA_RATE_LIMITS": "off",
            "PLAZA_TRUSTED_PROXIES": "127.0.0.1",
            "PLAZA_STOP_DELAY_SECONDS": "3",  # HAProxy checks every second, and needs two checks
        }
        older = {**settings, "PYTHONPATH": str(tmp_path / "older")}
        client = stack.enter_context(closing(server.redis_client()))
        proxy = stack.enter_context(running_proxy("haproxy", tmp_path))
        async with served(tmp_path / "b", proxy.behind[1], **older):
            async with served(tmp_path / "a", proxy.behind[0], **older) as first:
                load = ConstantLoad(proxy, *await _user_with_post(first.url))
                loading = asyncio.gather(*(load.run() for _ in range(3)))
                await eventually(lambda: load.responses > 20 or loading.done())
                assert len(_social_libraries(client)) == 1
            await stack.enter_async_context(served(tmp_path / "a2", proxy.behind[0], **settings))
            assert len(_social_libraries(client)) == 2
            await _more_responses(load, loading)
        await stack.enter_async_context(served(tmp_path / "b2", proxy.behind[1], **settings))
        await _more_responses(load, loading)
        load.is_done = True
        await loading
        assert not load.failed, load.failed[:5]


async def _user_with_post(url: str) -> tuple[str, str]:
    async with httpx.AsyncClient(base_url=url, timeout=TIME_LIMIT_SECONDS) as http:
        account = {"username": "ana", "password": PASSWORD}
        token = (await http.post("/auth/register", json=account)).raise_for_status().json()["access_token"]
        headers = {"authorization": f"Bearer {token}"}
        post = (await http.post("/posts", json={"content": "Hello"}, headers=headers)).raise_for_status().json()
        return token, post["id"]


async def _more_responses(load: ConstantLoad, loading: asyncio.Future[Any]) -> None:
    count = load.responses + 20
    await eventually(lambda: load.responses > count or loading.done())


def _social_libraries(client: redis.Redis) -> set[str]:
    found: Any = client.execute_command("FUNCTION", "LIST", "LIBRARYNAME", "plaza_social_*")
    return {library["library_name"] for library in found}
