"""The root path: where it comes from, and how requests and responses change."""

from __future__ import annotations

import pytest

from plaza.core.errors import SettingError
from plaza.core.http.bound_route import EncodedResponse
from plaza.core.http.mounting import find_root, mounted, unmounted
from plaza.core.root_path import public_url
from plaza.core.settings import Settings


@pytest.mark.parametrize(
    ("raw", "root_path", "configured", "path"),
    [
        (b"/a/posts", "/a", "", b"/posts"),
        (b"/a/b/posts/x%2Fy", "/a/b", "", b"/posts/x%2Fy"),
        (b"/my%20site/posts", "/my site", "", b"/posts"),
        (b"/a", "/a", "", b"/"),
        (b"/a/", "/a/", "", b"/"),
        (b"/posts", "/a", "", b"/posts"),  # the framework has removed it
        (b"/posts", "", "/a", b"/posts"),  # the proxy has removed it
        (b"/a/posts", "", "/a", b"/posts"),
        (b"/b/posts", "/b", "/a/b", b"/posts"),  # a proxy removed `/a`, the framework knows `/b`
        (b"/ab/posts", "/a", "", b"/ab/posts"),
        (b"/a%2Fposts", "/a", "", b"/a%2Fposts"),
    ],
)
def test_a_request_loses_the_root_path(raw: bytes, root_path: str, configured: str, path: bytes) -> None:
    assert unmounted({"raw_path": raw, "root_path": root_path}, configured)["raw_path"] == path


def test_a_server_may_leave_out_the_raw_path() -> None:
    assert unmounted({"path": "/a/tags/ä ö", "root_path": "/a"}, "")["raw_path"] == b"/tags/%C3%A4%20%C3%B6"


def test_the_setting_wins_over_the_scope() -> None:
    assert find_root({"root_path": "/b/"}, "") == "/b"
    assert find_root({"root_path": "/b"}, "/a/b") == "/a/b"
    assert find_root({}, "") == ""


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
