"""The root path: where it comes from, and how requests and responses change."""

from __future__ import annotations

from typing import Any

import pytest

from plaza.core.errors import SettingError
from plaza.core.http.bound_route import EncodedResponse
from plaza.core.http.exchange import AsgiExchange
from plaza.core.http.mounting import mounted, unmounted
from plaza.core.root_path import public_url
from plaza.core.settings import Settings


@pytest.mark.parametrize(
    ("raw", "root_path", "configured", "path"),
    [
        ("/a/posts", "/a", "", "/posts"),
        ("/a/b/posts/x%2Fy", "/a/b", "", "/posts/x%2Fy"),
        ("/my%20site/posts", "/my site", "", "/posts"),
        ("/a", "/a", "", "/"),
        ("/a/", "/a/", "", "/"),
        ("/posts", "/a", "", "/posts"),  # the framework has removed it
        ("/posts", "", "/a", "/posts"),  # the proxy has removed it
        ("/a/posts", "", "/a", "/posts"),
        ("/b/posts", "/b", "/a/b", "/posts"),  # a proxy removed `/a`, the framework knows `/b`
        ("/ab/posts", "/a", "", "/ab/posts"),
        ("/a%2Fposts", "/a", "", "/a%2Fposts"),
    ],
)
def test_a_request_loses_the_root_path(raw: str, root_path: str, configured: str, path: str) -> None:
    assert unmounted(raw, root_path, configured) == path


async def test_an_asgi_server_may_leave_out_what_is_optional() -> None:
    scope = {"method": "GET", "path": "/a/tags/ä ö", "query_string": b"", "headers": []}

    async def unused(*_: object) -> Any:
        raise AssertionError

    exchange = AsgiExchange(scope, unused, unused)
    assert (exchange.path, exchange.client, exchange.root_path) == ("/a/tags/%C3%A4%20%C3%B6", None, "")


def test_only_addresses_of_plaza_get_the_root_path() -> None:
    page = b'<a href="/app">x</a><a href="//other">y</a><a href="#top"><input value="/app"> href=&#34;/app&#34;'
    headers = [(b"location", b"/app"), (b"x-next", b"//other"), (b"content-type", b"text/html; charset=utf-8")]
    response = mounted(EncodedResponse(200, headers, page), "/a b")
    assert response.headers[:2] == [(b"location", b"/a%20b/app"), (b"x-next", b"//other")]
    assert response.body == page.replace(b'href="/app"', b'href="/a%20b/app"')
    json = mounted(EncodedResponse(200, [(b"content-type", b"application/json")], page), "/a")
    assert json.body == page


def test_the_public_url_contains_the_root_path() -> None:
    assert Settings(public_url="https://x.org/a/").mount_path == "/a"
    assert public_url(Settings(public_url="https://x.org/a/")) == "https://x.org/a"
    assert public_url(Settings(public_url="https://x.org", root_path="/a/")) == "https://x.org/a"
    assert public_url(Settings(root_path="/a", port=1)) == "http://127.0.0.1:1/a"


@pytest.mark.parametrize("given", ["a", "/a?b", "//a", "/a/../b c"])
def test_a_root_path_that_is_none_is_refused(given: str) -> None:
    with pytest.raises(SettingError, match="PLAZA_ROOT_PATH"):
        Settings(root_path=given)
    with pytest.raises(SettingError, match="PLAZA_ROOT_PATH"):
        Settings(root_path="/b", public_url="https://x.org/a")
