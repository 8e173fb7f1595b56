"""The page cache in other applications, and the examples."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import HTMLResponse
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from plaza.caching.middleware import PageCacheMiddleware
from plaza.caching.page_store import PageCacheOptions
from plaza.core.errors import Unavailable
from tests.http_servers import client_of
from tests.servers import Cluster, Server, running_server
from tests.timeouts import TIME_LIMIT_SECONDS, within_time_limit
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]


class CountingSite:
    """A Starlette application that counts what it computes."""

    def __init__(self) -> None:
        self.count = 0
        self.gate: asyncio.Event | None = None

    async def page(self, request: Request) -> Response:
        self.count += 1
        if self.gate is not None:
            await self.gate.wait()
        headers = {name: value for name, value in request.query_params.items() if name != "n"}
        return HTMLResponse(f"<p>{self.count} {request.headers.get('accept-language', '')}</p>", headers=headers)

    async def text(self, request: Request) -> Response:
        return PlainTextResponse("not a page")

    async def stream(self, request: Request) -> Response:
        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(20):
                yield b"x" * 100_000

        return StreamingResponse(chunks(), media_type="text/html")

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/page", self.page, methods=["GET", "POST"]),
                Route("/text", self.text),
                Route("/stream", self.stream),
            ]
        )


@pytest.fixture
def site() -> CountingSite:
    return CountingSite()


@pytest.fixture
async def web(site: CountingSite, place: Server | Cluster, valkey: Any) -> AsyncIterator[httpx.AsyncClient]:
    app = PageCacheMiddleware(site.app(), place.url, options=PageCacheOptions(beta=0), vary=["Accept-Language"])
    await reached(app)
    async with client_of(app) as client:
        yield client
    await app.close()


async def reached(app: PageCacheMiddleware) -> None:
    """Wait for its connections: a store that is not reached in time is bypassed, like an unavailable one."""
    async with within_time_limit():
        while True:
            with contextlib.suppress(Unavailable):
                await asyncio.gather(*(app.purge(f"none{n}") for n in range(30)))  # on each node of a cluster
                return
            await asyncio.sleep(0.1)


def status(answer: httpx.Response) -> str:
    return str(answer.headers["cache-status"])


async def test_pages_of_a_starlette_application_are_cached(
    web: httpx.AsyncClient, site: CountingSite, redis_client: Any
) -> None:
    miss, hit = await web.get("/page"), await web.get("/page")
    assert status(miss) == "plaza; fwd=uri-miss; stored"
    assert status(hit).startswith("plaza; hit; ttl=")
    assert miss.text == hit.text == "<p>1 </p>"
    assert hit.headers["age"] == "0"
    assert {"cookie", "authorization", "accept-language"} == set(hit.headers["vary"].split(", "))
    (name,) = [key async for key in redis_client.scan_iter("cache:*")]
    assert await redis_client.get(name) == "<p>1 </p>"
    same = await web.get("/page", headers={"if-none-match": hit.headers["etag"]})
    assert (same.status_code, same.content) == (304, b"")
    head = await web.head("/page")
    assert (head.headers["etag"], head.content) == (hit.headers["etag"], b"")
    assert site.count == 1


async def test_responses_that_forbid_caching_are_not_cached(
    web: httpx.AsyncClient, site: CountingSite, redis_client: Any
) -> None:
    for options, why in (
        ({"headers": {"cookie": "session=1"}}, "plaza; fwd=bypass; detail=personal"),
        ({"headers": {"authorization": "Bearer x"}}, "plaza; fwd=bypass; detail=personal"),
        ({"params": {"_": "1"}}, "plaza; fwd=bypass; detail=unwanted"),
        ({"headers": {"range": "bytes=0-1"}}, "plaza; fwd=bypass; detail=range"),
        ({"params": {"set-cookie": "a=b"}}, "plaza; fwd=uri-miss; stored=?0"),
        ({"params": {"cache-control": "private"}}, "plaza; fwd=uri-miss; stored=?0"),
        ({"params": {"cache-control": "max-age=60, no-cache"}}, "plaza; fwd=uri-miss; stored=?0"),
        ({"params": {"cache-control": 'private="x-name"'}}, "plaza; fwd=uri-miss; stored=?0"),
        ({"params": {"cache-control": "max-age=0"}}, "plaza; fwd=uri-miss; stored=?0"),
        ({"params": {"vary": "user-agent"}}, "plaza; fwd=uri-miss; stored=?0"),
        ({"params": {"vary": "*"}}, "plaza; fwd=uri-miss; stored=?0"),
    ):
        before = site.count
        for _ in range(2):
            answer = await web.get("/page", **options)  # type: ignore[arg-type]
            assert answer.status_code == 200
            web.cookies.clear()
            assert status(answer) in (why, "plaza; fwd=uri-miss; stored=?0")
        assert site.count == before + 2, options
    assert [key async for key in redis_client.scan_iter("cache:*")] == []


async def test_posts_other_types_and_streams_are_unchanged(web: httpx.AsyncClient, redis_client: Any) -> None:
    assert "cache-status" not in (await web.post("/page")).headers
    assert (await web.get("/text")).text == "not a page"
    assert len((await web.get("/stream")).content) == 2_000_000
    assert (await web.get("/nowhere")).status_code == 404
    assert [key async for key in redis_client.scan_iter("cache:*")] == []


async def test_a_header_in_vary_selects_another_page(web: httpx.AsyncClient, site: CountingSite) -> None:
    for language in ("en", "de", "en", "de"):
        answer = await web.get("/page", headers={"accept-language": language}, params={"vary": "Accept-Language"})
        assert answer.text.endswith(f"{language}</p>")
    assert site.count == 2


async def test_a_page_may_shorten_its_fresh_time(web: httpx.AsyncClient, redis_client: Any) -> None:
    await web.get("/page", params={"cache-control": "s-maxage=20, max-age=0"})
    (name,) = [key async for key in redis_client.scan_iter("cache:*")]
    assert 0 < await redis_client.pttl(name) <= 20_000


async def test_a_hundred_concurrent_misses_cost_one_computation(web: httpx.AsyncClient, site: CountingSite) -> None:
    site.gate = asyncio.Event()
    readers = [asyncio.create_task(web.get("/page", timeout=TIME_LIMIT_SECONDS)) for _ in range(100)]
    await eventually(lambda: site.count)
    site.gate.set()
    assert {answer.text for answer in await asyncio.gather(*readers)} == {"<p>1 </p>"}
    assert site.count == 1


async def test_a_streamed_page_is_renewed_while_readers_get_the_previous_one(
    place: Server | Cluster, valkey: Any
) -> None:
    count, heard = 0, 0

    async def page(request: Request) -> Response:
        async def chunks() -> AsyncIterator[str]:
            nonlocal count
            count += 1
            await asyncio.sleep(0.01)
            yield f"<p>{count}</p>"

        return StreamingResponse(chunks(), media_type="text/html")

    inside = Starlette(routes=[Route("/page", page)])

    async def counted(scope: Any, receive: Any, send: Any) -> None:
        async def listening() -> Any:
            nonlocal heard
            heard += 1
            assert heard < 50, "Starlette listens while it streams: nothing must be said to it in a loop"
            return await receive()

        await inside(scope, listening, send)

    app = PageCacheMiddleware(counted, place.url, options=PageCacheOptions(fresh_seconds=0.05, beta=0))
    await reached(app)
    async with client_of(app) as web:
        assert (await web.get("/page")).text == "<p>1</p>"

        async def renewed() -> bool:
            return (await web.get("/page")).text != "<p>1</p>"

        await eventually(renewed)
    await app.close()


async def test_a_file_response_is_cached_like_any_page(server: Server, valkey: Any, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<p>a file</p>")
    files = Starlette(routes=[Route("/page", lambda request: FileResponse(tmp_path / "page.html"))])
    app = PageCacheMiddleware(files, server.url)
    await reached(app)

    async def offering(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "extensions": {"http.response.pathsend": {}}}, receive, send)

    async with client_of(offering) as web:
        assert (await web.get("/page")).text == (await web.get("/page")).text == "<p>a file</p>"
    await app.close()


async def test_requests_do_not_queue_for_a_valkey_that_does_not_respond(site: CountingSite) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        app = PageCacheMiddleware(site.app(), f"valkey://127.0.0.1:{silent.getsockname()[1]}")
        async with client_of(app) as web:
            answers = await asyncio.gather(*(web.get(f"/page?n={n}", timeout=TIME_LIMIT_SECONDS) for n in range(5)))
            assert {status(answer) for answer in answers} == {"plaza; fwd=bypass; detail=store-away"}
            silent.setblocking(False)
            silent.accept()[0].close()
            with pytest.raises(BlockingIOError):
                silent.accept()  # five readers, one attempt


async def test_without_valkey_pages_are_served_uncached(site: CountingSite) -> None:
    with running_server() as server:
        app, late = PageCacheMiddleware(site.app(), server.url), PageCacheMiddleware(site.app(), server.url)
        await reached(app)
        async with client_of(app) as web:
            assert status(await web.get("/page")) == "plaza; fwd=uri-miss; stored"
            server.stop(signal.SIGKILL)
            answer = await web.get("/page", timeout=TIME_LIMIT_SECONDS)
            assert answer.status_code == 200
            assert status(answer) == "plaza; fwd=bypass; detail=store-away"
        async with client_of(late) as web:  # one that never reached it
            assert status(await web.get("/page", timeout=TIME_LIMIT_SECONDS)) == "plaza; fwd=bypass; detail=store-away"


async def test_the_middleware_works_in_a_fastapi_application(place: Server | Cluster, valkey: Any) -> None:
    app, count = FastAPI(), 0

    @app.get("/", response_class=HTMLResponse)
    async def page() -> str:
        nonlocal count
        count += 1
        return f"<p>{count}</p>"

    app.add_middleware(PageCacheMiddleware, store=place.url)
    async with client_of(app) as web:

        async def is_stored() -> bool:
            return status(await web.get("/")).startswith("plaza; hit")

        await eventually(is_stored)
        assert (await web.get("/")).text == f"<p>{count}</p>"


async def test_the_page_cache_example_works(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VALKEY", server.url)
    monkeypatch.delitem(sys.modules, "examples.page_cache", raising=False)
    from examples import page_cache

    async with client_of(page_cache.app) as web:
        assert (await web.get("/items/7")).text == "<h1>3 left</h1>"
        assert status(await web.get("/items/7")).startswith("plaza; hit")
        assert (await web.post("/items/7/sold")).json() == {"pages_dropped": 1}
        assert (await web.get("/items/7")).text == "<h1>2 left</h1>"


def test_the_row_cache_example_needs_only_a_valkey(server: Server, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "row_cache.py")],
        env={"VALKEY": server.url, "PYTHONPATH": str(ROOT / "src"), "PATH": ""},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert '"qty":629' in first
    assert '"qty":628' in second
    assert list(tmp_path.iterdir()) == [], "it leaves nothing behind"
