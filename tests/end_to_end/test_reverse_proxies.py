"""Plaza behind nginx and HAProxy, with the configurations of `docs/`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final, cast

import httpx
import pytest

from plaza.core.errors import Unavailable
from plaza.core.http.access import PUBLIC
from plaza.core.http.app import App, make_app
from plaza.core.http.app_options import AppOptions
from plaza.core.http.request import Request
from plaza.core.http.responses import EVENTS, ServerSentEvent
from plaza.core.http.routes import Routes
from plaza.core.process.listening_socket import listen
from plaza.core.settings import Settings
from plaza.serve import ApiServer
from plaza.shutdown import Shutdown
from tests.core.sample_domain import AUTH
from tests.reverse_proxies import DOCS, FILES, HOST, Name, ReverseProxy, running_proxy
from tests.timeouts import TIME_LIMIT_SECONDS, within_time_limit
from tests.waiting import eventually

CLIENT, SPOOFED = "127.0.0.2", "203.0.113.9"
FILE_BYTES = 10_000_000
SETTINGS: Final = Settings(
    jwt_secret="s" * 32, api_key="k" * 32, trusted_proxies=("127.0.0.1",), rate_limits=False, queue_ms=60_000
)

route = Routes("behind")


class Backend:
    """What the routes use: the name of a server, and an event that ends its streams."""

    def __init__(self, name: str, draining: asyncio.Event) -> None:
        self.name = name
        self.draining = draining
        self.may_end = asyncio.Event()
        self.peers: set[Any] = set()


@route.get("/readyz", access=PUBLIC, limit=None)
async def get_readiness(backend: Backend) -> dict[str, str]:
    if backend.draining.is_set():
        raise Unavailable("This process is shutting down.")
    return {"status": "ready"}


@route.get("/seen", access=PUBLIC)
async def get_seen(request: Request, backend: Backend) -> dict[str, Any]:
    backend.peers.add(request.exchange.client)
    return {
        "by": backend.name,
        "address": request.address,
        "secure": request.secure,
        "host": request.headers["host"],
    }


@route.post("/files", access=PUBLIC, body_limit=FILE_BYTES)
async def post_file(body: bytes) -> dict[str, int]:
    return {"size": len(body)}


@route.get("/stream", access=PUBLIC, media_type=EVENTS)
async def get_stream(backend: Backend) -> AsyncIterator[ServerSentEvent[int]]:
    yield ServerSentEvent(1)
    await backend.may_end.wait()
    yield ServerSentEvent(2)


@contextlib.asynccontextmanager
async def served(name: str, port: int) -> AsyncIterator[Backend]:
    """Serve the routes on a port as `plaza serve` does, and drain at the end."""
    draining = asyncio.Event()
    backend = Backend(name, draining)
    app: App = make_app(
        [route], {Backend: backend}, auth=AUTH, settings=SETTINGS, options=AppOptions(draining=draining)
    )
    with listen("127.0.0.1", port) as sock:
        api = ApiServer(app, SETTINGS)
        serving = asyncio.ensure_future(api.serve(sockets=[sock]))
        await api.started_event.wait()
        try:
            yield backend
        finally:
            await api.drain(serving, Shutdown())


@pytest.fixture(scope="session", params=list(FILES))
def proxy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReverseProxy]:
    name: Name = request.param
    with running_proxy(name, tmp_path_factory.mktemp(name)) as running:
        yield running


@contextlib.asynccontextmanager
async def client_of(proxy: ReverseProxy) -> AsyncIterator[httpx.AsyncClient]:
    """A client with an address of its own, which claims to have another one."""
    transport = httpx.AsyncHTTPTransport(verify=False, local_address=CLIENT)
    headers = {"host": HOST, "x-forwarded-for": SPOOFED, "x-forwarded-proto": "http"}
    url = f"https://127.0.0.1:{proxy.https}"
    async with httpx.AsyncClient(
        transport=transport, base_url=url, headers=headers, timeout=TIME_LIMIT_SECONDS
    ) as client:
        yield client


async def is_seen_by(client: httpx.AsyncClient, name: str) -> bool:
    answer = await client.get("/seen")
    return answer.status_code == 200 and answer.json()["by"] == name


async def test_a_client_is_seen_as_it_is_and_streams_and_files_pass(proxy: ReverseProxy) -> None:
    async with served("one", proxy.behind[0]) as backend, client_of(proxy) as client:
        await eventually(lambda: is_seen_by(client, "one"))  # HAProxy looks for it once a second
        seen = await client.get("/seen")
        assert seen.json() == {"by": "one", "address": CLIENT, "secure": True, "host": HOST}
        assert "strict-transport-security" in seen.headers

        backend.peers.clear()
        for _ in range(10):
            assert (await client.get("/seen")).status_code == 200
        assert len(backend.peers) < 10  # connections to Plaza are kept

        uploaded = await client.post("/files", content=b"x" * FILE_BYTES)
        assert uploaded.json() == {"size": FILE_BYTES}

        async with within_time_limit(), client.stream("GET", "/stream") as stream:
            lines = stream.aiter_lines()
            assert await anext(lines) == "data: 1"  # before the stream ends
            backend.may_end.set()
            assert "data: 2" in [line async for line in lines]

        plain = await client.get(f"http://127.0.0.1:{proxy.http}/seen?a=1")
        assert (plain.status_code, plain.headers["location"]) == (301, f"https://{HOST}/seen?a=1")


async def test_servers_restart_one_after_the_other_without_a_failed_request(proxy: ReverseProxy) -> None:
    seen: list[str] = []
    is_done = asyncio.Event()

    async def load(client: httpx.AsyncClient) -> None:
        while not is_done.is_set():
            answer = await client.get("/seen")
            assert answer.status_code == 200, answer.text
            seen.append(cast(str, answer.json()["by"]))

    async with contextlib.AsyncExitStack() as stack, contextlib.AsyncExitStack() as new:
        clients = [await stack.enter_async_context(client_of(proxy)) for _ in range(4)]
        async with served("second", proxy.behind[1]):
            async with served("first", proxy.behind[0]):
                for name in ("first", "second"):
                    await eventually(lambda name=name: is_seen_by(clients[0], name))  # type: ignore[misc]
                loading = asyncio.gather(*map(load, clients))
                await eventually(lambda: len(seen) > 50 or loading.done())
            await new.enter_async_context(served("first again", proxy.behind[0]))
            await eventually(lambda: "first again" in seen or loading.done())
        await new.enter_async_context(served("second again", proxy.behind[1]))
        await eventually(lambda: "second again" in seen or loading.done())
        is_done.set()
        await loading


@pytest.mark.parametrize("proxy", ["nginx"], indirect=True)
async def test_nginx_repeats_a_post_that_a_stopping_server_did_not_answer_if_it_has_a_key(proxy: ReverseProxy) -> None:
    unanswered = 0

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal unanswered
        unanswered += (await reader.readuntil(b"\r\n\r\n")).startswith(b"POST")
        writer.close()

    stopping = await asyncio.start_server(hang_up, "127.0.0.1", proxy.behind[1])
    async with served("one", proxy.behind[0]), client_of(proxy) as client, stopping:

        async def statuses(**headers: str) -> set[int]:
            posts = [await client.post("/files", content=b"x", headers=headers) for _ in range(4)]
            return {post.status_code for post in posts}

        assert await statuses(**{"idempotency-key": "a-key"}) == {200}
        assert unanswered
        assert await statuses() == {200, 502}, "it may have run"


def test_the_page_shows_the_files_that_are_tested() -> None:
    page = (DOCS / "proxies.md").read_text()
    for file in FILES.values():
        assert (DOCS / file).read_text() in page
