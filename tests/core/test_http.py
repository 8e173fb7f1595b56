"""What all responses have in common, over a real socket."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from plaza.core.http.app import App
from plaza.core.settings import Settings
from tests.core.sample_domain import Shelf, app_of, token
from tests.http_servers import client_of, is_problem, raw
from tests.servers import Server
from tests.timeouts import connect_for_test


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def app(shelf: Shelf) -> App:
    return app_of(shelf)


@pytest.fixture
async def client(app: App) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(app, **token()) as client:
        yield client


async def test_a_body_comes_in_typed_and_a_struct_goes_out_as_json(client: httpx.AsyncClient) -> None:
    made = await client.post("/things", json={"title": "Lamp"})
    assert (made.status_code, made.json()) == (201, {"id": 1, "title": "Lamp", "author": "ana"})
    assert made.headers["content-type"] == "application/json"
    assert (await client.get("/things/1")).json() == made.json()


async def test_no_result_is_204_without_a_body(client: httpx.AsyncClient) -> None:
    gone = await client.delete("/things/1")
    assert (gone.status_code, gone.content) == (204, b"")
    assert "content-length" not in gone.headers
    assert "content-type" not in gone.headers


async def test_a_response_may_have_its_own_status_headers_and_type(client: httpx.AsyncClient) -> None:
    page = await client.get("/page")
    assert (page.status_code, page.text) == (203, "<p>ü</p>")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers.get_list("set-cookie") == ["a=1", "b=2"]
    assert page.headers.get_list("content-security-policy") == ["default-src 'self'"], "its own, not both"


async def test_a_header_cannot_be_broken_in_two(client: httpx.AsyncClient) -> None:
    answer = await client.get("/split")
    is_problem(answer, 500, "internal")
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "title"),
        ({"title": ""}, "title"),
        ({"title": 5}, "title"),
        ({"title": "x", "colour": 1}, "colour"),
        ({"title": "x", "a`b": 1}, "a`b"),
        ({"title": "x", "parts": [{"name": "a"}, {"name": 2}]}, "parts[1].name"),
        ({"title": "x", "parts": [{"name": "a", "size": 2}]}, "parts[0].size"),
        ({"title": "x", "parts": [{}]}, "parts[0].name"),
    ],
)
async def test_a_wrong_or_unknown_field_is_422_and_named(client: httpx.AsyncClient, body: Any, field: str) -> None:
    document = is_problem(await client.post("/things", json=body), 422, "invalid")
    assert document["field"] == field


async def test_a_body_of_another_shape_is_422_and_named(client: httpx.AsyncClient) -> None:
    assert is_problem(await client.post("/things", json=["x"]), 422, "invalid")["field"] == "body"


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[", b'{"title": 1', b'{"title": "\xff"}', b"[" * 100_000, b'{"title":"x"} x', b'{"title":NaN}'],
)
async def test_what_is_not_json_is_400(client: httpx.AsyncClient, body: bytes) -> None:
    is_problem(await client.post("/things", content=body), 400, "bad_json")


@pytest.mark.parametrize("body", [b"", b"{}", b" { } "])
async def test_a_route_that_needs_no_body_takes_none_or_an_empty_one(client: httpx.AsyncClient, body: bytes) -> None:
    assert (await client.post("/things/7/like", content=body)).json() == {"liked": 7, "by": "ana"}
    assert (await client.request("DELETE", "/things/7", content=body)).status_code == 204
    assert (await client.patch("/things/7", content=body)).json() == {"title": None}


async def test_a_route_that_needs_no_body_refuses_fields(client: httpx.AsyncClient) -> None:
    assert is_problem(await client.post("/things/7/like", json={"x": 1}), 422, "invalid")["field"] == "x"
    is_problem(await client.post("/things/7/like", content=b"nonsense"), 400, "bad_json")


async def test_each_error_has_its_status_and_headers(client: httpx.AsyncClient) -> None:
    is_problem(await client.get("/nowhere"), 404, "not_found")
    assert is_problem(await client.get("/things/99"), 404, "not_found")["id"] == 99
    is_problem(await client.get("/errors/conflict"), 409, "conflict")
    is_problem(await client.get("/errors/gone"), 410, "gone")
    is_problem(await client.get("/errors/forbidden"), 403, "forbidden")
    fast, away = await client.get("/errors/fast"), await client.get("/errors/away")
    is_problem(fast, 429, "too_fast")
    is_problem(away, 503, "unavailable")
    assert (fast.headers["retry-after"], away.headers["retry-after"]) == ("3", "1")
    wrong_method = await client.put("/things/1", json={})
    is_problem(wrong_method, 405, "method_not_allowed")
    assert wrong_method.headers["allow"] == "DELETE, GET, HEAD, OPTIONS, PATCH"
    is_problem(await client.request("PURGE", "/things/1"), 405, "method_not_allowed")


async def test_an_unexpected_error_is_500_and_reveals_nothing(client: httpx.AsyncClient) -> None:
    with capture_logs() as log:
        answer = await client.get("/errors/bug")
    is_problem(answer, 500, "internal")
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    assert isinstance(log[0]["exc_info"], ZeroDivisionError), "but the log has it"
    assert log[0]["request_id"] == answer.headers["x-request-id"]


async def test_no_or_bad_credentials_are_401(app: App) -> None:
    async with client_of(app) as client:
        anonymous = await client.post("/things", json={"title": "x"})
        is_problem(anonymous, 401, "unauthenticated")
        assert anonymous.headers["www-authenticate"].startswith("Bearer")
        is_problem(await client.post("/things", headers={"authorization": "Bearer x"}), 401, "unauthenticated")
        assert (await client.get("/me")).json()["name"] is None
        is_problem(await client.get("/me", headers={"x-access-token": "x"}), 401, "unauthenticated")
        assert (await client.get("/me", headers={"x-api-key": "k" * 32})).json()["name"] == "@api"


async def test_a_route_of_another_protocol_has_errors_in_its_own_form(app: App) -> None:
    async with client_of(app) as client:
        anonymous = await client.post("/other-protocol", json={})
        assert (anonymous.status_code, anonymous.json()) == (
            401,
            {"error": "ERR This needs authentication. Send a token or an API key."},
        )
        assert anonymous.headers["content-type"] == "application/json"
        wrong = await client.post("/other-protocol", json={}, headers=token())
        assert (wrong.status_code, wrong.json()) == (422, {"error": "ERR Missing field: title."})


async def test_a_valid_request_id_is_kept_and_another_is_replaced(client: httpx.AsyncClient) -> None:
    assert (await client.get("/me", headers={"x-request-id": "req-1/a.b:c"})).headers["x-request-id"] == "req-1/a.b:c"
    made = {(await client.get("/me")).headers["x-request-id"] for _ in range(50)}
    assert len(made) == 50
    for odd in ("x" * 129, "a b", 'a"b', "a;b", "ü", ""):
        answer = await client.get("/me", headers={b"x-request-id": odd.encode()})
        assert re.fullmatch("[0-9a-f]{24}", answer.headers["x-request-id"])
    assert (await client.get("/nowhere")).headers["x-request-id"]


async def test_server_timing_has_round_trips_and_time(server: Server) -> None:
    shelf = Shelf(valkey=await connect_for_test(server.url))
    async with client_of(app_of(shelf)) as client:
        for count in (0, 1, 3):
            timing = (await client.get(f"/trips/{count}")).headers["server-timing"]
            found = re.fullmatch(r'valkey;desc="(\d+) round trips?";dur=([\d.]+), total;dur=([\d.]+)', timing)
            assert found is not None, timing
            assert int(found[1]) == count
            assert (float(found[2]) > 0) == (count > 0)
            assert float(found[2]) <= float(found[3])
        assert "0 round trips" in (await client.get("/nowhere")).headers["server-timing"]
    assert shelf.valkey is not None
    await shelf.valkey.close()


async def test_errors_do_not_reveal_the_address_of_valkey(client: httpx.AsyncClient) -> None:
    answer = await client.get("/errors/lost")
    assert is_problem(answer, 503, "unavailable")["detail"] == "Valkey is unavailable or busy."
    assert "db.internal" not in answer.text
    assert answer.headers["retry-after"] == "1"


async def test_every_response_has_the_security_headers(client: httpx.AsyncClient) -> None:
    for path in ("/me", "/nowhere", "/errors/bug", "/page", "/things?x=1"):
        answer = await client.get(path)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
        kind, _, charset = answer.headers["content-type"].partition("; charset=")
        assert kind in ("application/json", "application/problem+json") or charset == "utf-8"  # JSON is always UTF-8
        if path != "/page":
            assert answer.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"


async def test_head_is_get_without_the_body(client: httpx.AsyncClient) -> None:
    get, head = await client.get("/echo/hello"), await client.head("/echo/hello")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == get.headers["content-length"] != "0"
    assert (await client.head("/nowhere")).status_code == 404
    assert (await client.head("/events")).content == b""


async def test_options_lists_the_methods_of_a_path(client: httpx.AsyncClient) -> None:
    answer = await client.options("/things")
    assert (answer.status_code, answer.headers["allow"]) == (204, "GET, HEAD, OPTIONS, POST")
    assert "access-control-allow-origin" not in answer.headers
    is_problem(await client.options("/nowhere"), 404, "not_found")
    is_problem(await client.request("TRACE", "/things"), 405, "method_not_allowed")


ORIGIN = "https://plaza.example"
WITH_CORS = Settings(jwt_secret="s" * 32, api_key="k" * 32, cors_origins=(ORIGIN, "http://localhost:3000"))


async def test_no_origin_is_allowed_unless_it_is_configured(client: httpx.AsyncClient) -> None:
    answer = await client.get("/me", headers={"origin": ORIGIN})
    assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_a_configured_origin_may_send_requests_and_read_responses(app: App) -> None:
    async with client_of(app_of(settings=WITH_CORS)) as client:
        answer = await client.get("/nowhere", headers={"origin": ORIGIN})
        assert answer.headers["access-control-allow-origin"] == ORIGIN
        assert answer.headers["vary"] == "origin"
        exposed = answer.headers["access-control-expose-headers"].split(", ")
        assert {"x-request-id", "server-timing", "retry-after", "ratelimit"} <= set(exposed)
        foreign = await client.get("/me", headers={"origin": "https://evil.example"})
        assert "access-control-allow-origin" not in foreign.headers
        assert foreign.headers["vary"] == "origin", "or a cache would give one origin's answer to another"


async def test_a_preflight_request_is_answered(app: App) -> None:
    asks = {
        "origin": ORIGIN,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization, content-type,idempotency-key",
    }
    async with client_of(app_of(settings=WITH_CORS)) as client:
        answer = await client.options("/things", headers=asks)
        assert answer.status_code == 204
        assert answer.headers["access-control-allow-origin"] == ORIGIN
        assert "POST" in answer.headers["access-control-allow-methods"]
        assert answer.headers["access-control-allow-headers"] == asks["access-control-request-headers"]
        assert int(answer.headers["access-control-max-age"]) > 0
        refused = await client.options("/things", headers={**asks, "origin": "https://evil.example"})
        assert not [name for name in refused.headers if name.startswith("access-control-allow")]


async def test_a_page_of_another_site_cannot_write(app: App) -> None:
    strange = {"sec-fetch-site": "cross-site", "origin": "https://evil.example", **token()}
    async with client_of(app_of(settings=WITH_CORS)) as client:
        is_problem(await client.post("/things/1/like", headers=strange), 403, "cross_origin")
        assert (await client.get("/me", headers=strange)).status_code == 200
        assert (await client.post("/things/1/like", headers={**strange, "origin": ORIGIN})).status_code == 200
        own = {**strange, "sec-fetch-site": "same-origin"}
        assert (await client.post("/things/1/like", headers=own)).status_code == 200


BEHIND_PROXY = Settings(
    jwt_secret="s" * 32, api_key="k" * 32, trusted_proxies=("127.0.0.0/8", "10.0.0.1", "2001:db8::/32")
)


@pytest.mark.parametrize(
    ("forwarded", "address"),
    [
        ([], "127.0.0.1"),
        (["203.0.113.9"], "203.0.113.9"),
        (["1.1.1.1, 203.0.113.9"], "203.0.113.9"),
        (["1.1.1.1, 203.0.113.9, 10.0.0.1"], "203.0.113.9"),
        (["1.1.1.1", "203.0.113.9", "10.0.0.1"], "203.0.113.9"),
        (["203.0.113.9:4711"], "203.0.113.9"),
        (["[2001:db9::7]:4711, 2001:db8::1"], "2001:db9::7"),
        (["::ffff:203.0.113.9"], "203.0.113.9"),
        (["203.0.113.9, nonsense, 10.0.0.1"], "10.0.0.1"),
        (["10.0.0.1, 127.0.0.1"], "10.0.0.1"),
        (["<script>"], "127.0.0.1"),
        (["fe80::1%a#staff#NZ"], "fe80::1"),
    ],
)
async def test_the_client_is_the_rightmost_address_that_is_not_a_trusted_proxy(
    forwarded: list[str], address: str
) -> None:
    async with client_of(app_of(settings=BEHIND_PROXY)) as client:
        headers = [("x-forwarded-for", line) for line in forwarded]
        assert (await client.get("/me", headers=headers)).json()["address"] == address


async def test_forwarded_headers_of_an_untrusted_peer_are_ignored(client: httpx.AsyncClient) -> None:
    headers = {"x-forwarded-for": "203.0.113.9", "x-forwarded-proto": "https"}
    assert (await client.get("/me", headers=headers)).json() == {"name": "ana", "address": "127.0.0.1", "secure": False}
    async with client_of(app_of(settings=BEHIND_PROXY)) as behind:
        assert (await behind.get("/me", headers=headers)).json()["secure"] is True
        assert (await behind.get("/me")).json()["secure"] is False


async def test_invalid_http_is_400_and_the_server_continues(client: httpx.AsyncClient) -> None:
    port = client.base_url.port
    assert port is not None
    assert (await raw(port, b"\x16\x03\x01 nonsense\r\n\r\n")).startswith(b"HTTP/1.1 400")
    assert (await client.get("/me")).status_code == 200
