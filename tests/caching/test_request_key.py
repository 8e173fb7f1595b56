"""What selects a page: the key hook, and compression inside or outside of the cache."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from plaza.caching import PageCacheClient, PageCacheMiddleware, PageCacheOptions, RequestKey
from tests.http_servers import client_of
from tests.servers import Server

KEY = RequestKey(
    ignored_parameters=["utm_*", "fbclid"],
    cookies=["language"],
    ignored_cookies=["_ga*"],
    extra=lambda scope: str(scope["path"].startswith("/json")),
)


class SeenRequests:
    """An application that returns what it saw of the request, and counts."""

    def __init__(self) -> None:
        self.count = 0

    def _seen(self, request: Request) -> str:
        self.count += 1
        return f"{request.url.query} {request.headers.get('cookie', '')} {'text ' * 200}"

    async def page(self, request: Request) -> Response:
        return HTMLResponse(self._seen(request), headers={"vary": "Cookie", "cache-tag": "pages"})

    async def json(self, request: Request) -> Response:
        return JSONResponse({"seen": self._seen(request)}, headers={"cache-tag": "pages"})

    def app(self) -> Any:
        return Starlette(routes=[Route("/page", self.page), Route("/json", self.json)])


@pytest.fixture
def seen() -> SeenRequests:
    return SeenRequests()


@pytest.fixture
async def client(server: Server, valkey: Any) -> AsyncIterator[PageCacheClient]:
    client = PageCacheClient(server.url, PageCacheOptions(beta=0))
    await client.purge("none")  # connected
    yield client
    await client.close()


async def is_hit(http: httpx.AsyncClient, path: str, **headers: str) -> bool:
    http.cookies.clear()
    response = await http.get(path, headers=headers)
    assert response.status_code == 200
    return " hit;" in response.headers["cache-status"]


@pytest.mark.parametrize("place", ["server"], indirect=True)
async def test_json_is_cached_like_html_and_other_types_by_choice(client: PageCacheClient, seen: SeenRequests) -> None:
    async with client_of(PageCacheMiddleware(seen.app(), client)) as http:
        assert [await is_hit(http, "/json?n=1") for _ in range(2)] == [False, True]
        response = await http.get("/json?n=1")
        assert response.headers["content-type"] == "application/json"
        assert response.json()["seen"].startswith("n=1")
        etag = {"if-none-match": response.headers["etag"]}
        assert (await http.get("/json?n=1", headers=etag)).status_code == 304
    async with client_of(PageCacheMiddleware(seen.app(), client, media_types=["text/plain"])) as http:
        assert [await is_hit(http, "/json?n=2") for _ in range(2)] == [False, False]


@pytest.mark.parametrize("place", ["server"], indirect=True)
async def test_pages_are_purged_through_the_handle_that_the_middleware_uses(
    client: PageCacheClient, seen: SeenRequests
) -> None:
    app = seen.app()
    app.add_middleware(PageCacheMiddleware, store=client)  # which makes the instance itself
    async with client_of(app) as http:
        assert [await is_hit(http, "/json") for _ in range(2)] == [False, True]
        assert await client.purge("pages") == 1
        assert not await is_hit(http, "/json")


@pytest.mark.parametrize("place", ["server"], indirect=True)
async def test_ignored_parameters_and_cookies_select_no_page_and_do_not_reach_the_application(
    client: PageCacheClient, seen: SeenRequests
) -> None:
    async with client_of(PageCacheMiddleware(seen.app(), client, key=KEY)) as http:
        assert not await is_hit(http, "/page?a=1&utm_source=mail&fbclid=x", cookie="_ga=1")
        assert await is_hit(http, "/page?utm%5Fsource=other&a=1")
        assert await is_hit(http, "/page?a=1", cookie="_ga_2=7; _ga=2")
        shown = (await http.get("/page?a=1&utm_source=mail", headers={"cookie": "_ga=1"})).text
        assert shown.startswith("a=1  text")
        assert not await is_hit(http, "/page?a=1&utm=2")  # another name
        assert not await is_hit(http, "/page?a=1", cookie="language=de")
        assert await is_hit(http, "/page?a=1", cookie="_ga=1; language=de")
        assert not await is_hit(http, "/page?a=1", cookie="language=fr")
        assert seen.count == 4
        twice = await http.get("/page?a=1", headers=[("cookie", "language=de"), ("cookie", "language=en")])
        assert "hit" not in twice.headers["cache-status"], "all cookies select the page, also in several headers"
        personal = await http.get("/page?a=1&utm_source=mail", headers={"cookie": "session=1; _ga=1"})
        assert personal.headers["cache-status"] == "plaza; fwd=bypass; detail=personal"
        assert personal.text.startswith("a=1&utm_source=mail session=1; _ga=1")  # it sees everything
        authorized = await http.get("/page?a=1", headers={"authorization": "Bearer x"})
        assert authorized.headers["cache-status"] == "plaza; fwd=bypass; detail=personal"


@pytest.mark.parametrize("place", ["server"], indirect=True)
@pytest.mark.parametrize("inside", [True, False])
async def test_pages_are_cached_with_compression_inside_and_outside(
    client: PageCacheClient, seen: SeenRequests, inside: bool
) -> None:
    app = seen.app()
    if inside:
        app = PageCacheMiddleware(GZipMiddleware(app), client)
    else:
        app = GZipMiddleware(PageCacheMiddleware(app, client))
    async with client_of(app) as http:
        path = f"/json?inside={inside}"
        for encodings in ("gzip, deflate, br", "br;q=1.0, gzip;q=0.8"):
            response = await http.get(path, headers={"accept-encoding": encodings})
            assert response.headers["content-encoding"] == "gzip"
            assert response.json()["seen"].startswith(f"inside={inside}")
        assert " hit;" in response.headers["cache-status"]
        for encodings in ("identity", "gzip;q=0"):
            plain = await http.get(path, headers={"accept-encoding": encodings})
            assert "content-encoding" not in plain.headers or not inside  # Starlette's does not look at `q`
            assert plain.json() == response.json()
        assert seen.count == 2
        known = await http.get(path, headers={"if-none-match": response.headers["etag"], "accept-encoding": "gzip"})
        assert (known.status_code, known.content) == (304, b"")
