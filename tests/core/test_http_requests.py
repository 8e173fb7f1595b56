"""Parsing of requests: paths, queries, bodies."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Annotated, Any
from urllib.parse import quote

import httpx
import msgspec
import pytest

from plaza.core.errors import Invalid
from plaza.core.http import body_reader
from plaza.core.http.argument_binding import body_decoder
from plaza.core.http.problem_details import BadJson
from tests.core.sample_domain import Shelf, app_of, token
from tests.http_servers import client_of, is_problem, raw
from tests.timeouts import within_time_limit


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(app_of(Shelf()), **token()) as client:
        yield client


def port_of(client: httpx.AsyncClient) -> int:
    assert client.base_url.port is not None
    return client.base_url.port


async def test_a_path_parameter_is_converted_and_a_wrong_one_is_422_and_named(client: httpx.AsyncClient) -> None:
    assert (await client.post("/things/12/like")).json()["liked"] == 12
    for wrong in ("0", "-1", "x", "1.5", "0x1", "1e3", "7.0"):
        assert is_problem(await client.get(f"/things/{wrong}"), 422, "invalid")["field"] == "thing"


@pytest.mark.parametrize(
    "text", ["a b", "a/b", "..", "%", "a%2Fb", "ü", "日本語", "🏝", "a?b#c", "a+b", "é", "\u202e", "x" * 1000]
)
async def test_a_path_parameter_is_decoded_once_and_stays_one_segment(client: httpx.AsyncClient, text: str) -> None:
    # Over a raw socket: clients tidy paths up before they send them.
    request = f"GET /echo/{quote(text, safe='')} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    head, _, body = (await raw(port_of(client), request.encode())).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    assert httpx.Response(200, content=body).json() == {"text": text}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/echo/%00", 400),
        ("/echo/a%0Ab", 400),
        ("/echo/a%7F", 400),
        ("/echo/%FF", 400),
        ("/echo/%C3%28", 400),
        ("/echo/%ED%A0%80", 400),  # a surrogate
        ("/echo/%C0%AF", 400),  # a slash in too many bytes
        ("/echo/", 404),
        ("/echo", 404),
        ("//echo/a", 404),
        ("/echo/a/", 404),
        ("/echo/a/b", 404),
        ("/echo/../me", 404),
        ("/things%2F1", 404),
        ("/users/me%2Fexport", 200),  # a user of a strange name, not the export
        ("/" + "x" * 5000, 414),
        ("/echo/" + "x/" * 2000, 404),
        ("/me?" + "x" * 9000, 414),
    ],
)
async def test_an_unusual_path_is_refused_and_never_reaches_another_route(
    client: httpx.AsyncClient, path: str, status: int
) -> None:
    request = f"GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    answer = await raw(port_of(client), request.encode())
    assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer
    if status == 200:
        assert b'{"user":"me/export"}' in answer
    else:
        assert b"application/problem+json" in answer


async def test_a_literal_segment_wins_over_a_parameter_unless_it_leads_to_no_route(client: httpx.AsyncClient) -> None:
    assert (await client.get("/users/me/export")).json() == {"export_of": "ana"}
    assert (await client.get("/users/me/posts")).json() == {"posts_of": "me"}
    assert (await client.get("/users/me")).json() == {"user": "me"}
    assert (await client.get("/users/bo/posts")).json() == {"posts_of": "bo"}
    is_problem(await client.get("/users/bo/export"), 404, "not_found")


async def test_query_parameters_are_converted_by_their_types(client: httpx.AsyncClient) -> None:
    defaults = (await client.get("/things")).json()
    assert defaults == {
        "page": {"limit": 20, "cursor": None, "offset": 0},
        "colour": None,
        "tag": [],
        "from": 0,
        "perShelf": 3,
        "includeUser": True,
    }
    assert (await client.get("/things?cursor=null")).json()["page"]["cursor"] == "null"
    asked = "?limit=5&cursor=a%2Db&offset=7&colour=red&tag=x&tag=%C3%BC+y&from=-3&perShelf=9&includeUser=false"
    assert (await client.get("/things" + asked)).json() == {
        "page": {"limit": 5, "cursor": "a-b", "offset": 7},
        "colour": "red",
        "tag": ["x", "ü y"],
        "from": -3,
        "perShelf": 9,
        "includeUser": False,
    }


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=x", "limit"),
        ("limit=", "limit"),
        ("limit=1&limit=2", "limit"),
        ("offset=1001", "offset"),
        ("colour=green", "colour"),
        ("colour=%6Eull", "colour"),
        ("from=null", "from"),
        ("perShelf=10", "perShelf"),
        ("per_shelf=1", "per_shelf"),
        ("from_=1", "from_"),
        ("includeUser=maybe", "includeUser"),
        ("nonsense=1", "nonsense"),
        ("Limit=1", "Limit"),
        ("nonsense", "nonsense"),
    ],
)
async def test_a_wrong_or_unknown_query_parameter_is_422_and_named(
    client: httpx.AsyncClient, query: str, field: str
) -> None:
    assert is_problem(await client.get(f"/things?{query}"), 422, "invalid")["field"] == field


async def test_a_route_without_query_parameters_refuses_them_too(client: httpx.AsyncClient) -> None:
    assert is_problem(await client.get("/me?debug=1"), 422, "invalid")["field"] == "debug"
    assert is_problem(await client.post("/things/1/like?debug=1"), 422, "invalid")["field"] == "debug"


@pytest.mark.parametrize("query", ["limit=%FF", "&".join(f"a{i}=1" for i in range(200))])
async def test_a_query_that_cannot_be_read_is_400(client: httpx.AsyncClient, query: str) -> None:
    is_problem(await client.get(f"/things?{query}"), 400, "bad_request")


async def test_a_body_may_be_as_large_as_the_route_allows_and_no_larger(client: httpx.AsyncClient) -> None:
    assert (await client.post("/uploads", content=b"x" * 1000)).json() == {"size": 1000}
    too_large = await client.post("/uploads", content=b"x" * 1001)
    assert is_problem(too_large, 413, "too_large")["limit"] == 1000
    assert too_large.headers["connection"] == "close"
    padded = b'{"title": "x"' + b" " * (1024 * 1024 - 14) + b"}"
    assert len(padded) == 1024 * 1024
    assert (await client.post("/things", content=padded)).status_code == 201
    is_problem(await client.post("/things", content=padded + b" "), 413, "too_large")


async def test_a_chunked_body_is_read_and_its_limit_holds_too(client: httpx.AsyncClient) -> None:
    async def chunks(count: int) -> AsyncIterator[bytes]:
        for _ in range(count):
            yield b"x" * 100

    assert (await client.post("/uploads", content=chunks(10))).json() == {"size": 1000}
    is_problem(await client.post("/uploads", content=chunks(11)), 413, "too_large")


async def test_a_client_that_sends_far_too_much_still_gets_the_response(client: httpx.AsyncClient) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(500):
            yield b"x" * 20_000

    # httpx writes to the end before it reads: a connection that is simply closed would be an error to it.
    is_problem(await client.post("/uploads", content=b"x" * 10_000_000), 413, "too_large")
    is_problem(await client.post("/uploads", content=chunks()), 413, "too_large")


async def test_an_endless_body_is_refused_at_once_and_not_read_without_limit(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body_reader, "DISCARD_SECONDS", 0.2)
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(client))
    writer.write(b"POST /uploads HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
    for _ in range(11):
        writer.write(b"64\r\n" + b"x" * 100 + b"\r\n")
    async with within_time_limit():
        head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 413")

    async def send_endlessly() -> None:
        while True:
            writer.write(b"64\r\n" + b"x" * 100 + b"\r\n")
            await writer.drain()
            await asyncio.sleep(0.01)

    with pytest.raises(ConnectionError):
        async with within_time_limit():
            await send_endlessly()
    writer.transport.abort()


async def test_a_declared_length_beyond_the_limit_is_refused_before_the_body_comes(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = b"POST /uploads HTTP/1.1\r\nhost: x\r\ncontent-length: 5000000\r\n"
    monkeypatch.setattr(body_reader, "DISCARD_IDLE_SECONDS", 0.05)
    assert (await raw(port_of(client), head + b"\r\n")).startswith(b"HTTP/1.1 413")
    asked = await raw(port_of(client), head + b"expect: 100-continue\r\n\r\n")
    assert asked.startswith(b"HTTP/1.1 413"), "not 100: the client need not send it"


async def test_a_body_that_does_not_arrive_in_time_is_408(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body_reader, "BODY_TIMEOUT_SECONDS", 0.05)
    head = b"POST /uploads HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nhalf"
    answer = await raw(port_of(client), head)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"too_slow" in answer


async def test_a_write_with_an_incomplete_body_does_not_run() -> None:
    shelf = Shelf()
    async with client_of(app_of(shelf)) as client:
        _, writer = await asyncio.open_connection("127.0.0.1", port_of(client))
        authorization = token()["authorization"]
        head = f"POST /things HTTP/1.1\r\nhost: x\r\nauthorization: {authorization}\r\ncontent-length: 100\r\n\r\n"
        writer.write(head.encode() + b'{"title": "x"}')
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.close()
        await asyncio.sleep(0.05)
        assert (await client.get("/things/1")).status_code == 404
    assert shelf.calls == []


async def test_pipelined_requests_are_answered_in_order(client: httpx.AsyncClient) -> None:
    requests = b"".join(b"GET /echo/%d HTTP/1.1\r\nhost: x\r\n\r\n" % i for i in range(20))
    last = b"GET /echo/last HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    answer = await raw(port_of(client), requests + last)
    found = [answer.find(b'{"text":"%d"}' % i) for i in range(20)]
    assert -1 not in found
    assert found == sorted(found)


async def test_arbitrary_bytes_never_cause_a_server_error(client: httpx.AsyncClient) -> None:
    chance = random.Random(9)

    def random_bytes(length: int) -> bytes:
        alphabet = b'ab/%?&=+.;:{}[]"\\0123456789ABCDEFabcdef\xc3\xa4\xff\x00~'
        return bytes(chance.choices(alphabet, k=chance.randrange(length)))

    paths = [b"/things", b"/things/", b"/echo/", b"/users/me/", b"/things?", b"/uploads", b"/"]
    for _ in range(150):
        path = chance.choice(paths) + random_bytes(20)
        body = chance.choice(
            [
                random_bytes(200),
                b'{"title": ' + random_bytes(30),
                b'{"title": "x", "parts": [' + random_bytes(30) + b"]}",
            ]
        )
        method = chance.choice([b"GET", b"POST", b"PATCH", b"DELETE", b"OPTIONS", b"HEAD"])
        head = b"%s %s HTTP/1.1\r\nhost: x\r\nconnection: close\r\n" % (method, path)
        head += b"authorization: %s\r\nx-request-id: %s\r\n" % (
            token()["authorization"].encode(),
            random_bytes(9).hex().encode(),
        )
        head += b"content-length: %d\r\n\r\n" % len(body)
        answer = await raw(port_of(client), head + body)
        assert answer[9:10] in (b"2", b"4"), (method, path, body, answer)


class Measurement(msgspec.Struct, forbid_unknown_fields=True):
    count: Annotated[int, msgspec.Meta(le=100)]
    weight: float = 0.0
    other: Any = None


def test_an_integer_may_be_written_with_a_fraction_of_zero() -> None:
    decode = body_decoder(Measurement)
    assert decode(b'{"count": 2.0, "weight": 3.0}') == Measurement(2, 3.0), "JSON Schema calls 2.0 an integer"
    assert decode(b'{"count": 1e1}') == Measurement(10)


@pytest.mark.parametrize("count", ["2.5", "101.0", "1e300", '"2"'])
def test_other_numbers_are_no_integers(count: str) -> None:
    with pytest.raises(Invalid) as refused:
        body_decoder(Measurement)(b'{"count": %s}' % count.encode())
    assert refused.value.extra["field"] == "count"


def test_a_deep_body_with_a_wrong_number_is_refused() -> None:
    with pytest.raises((BadJson, Invalid)):
        body_decoder(Measurement)(b'{"count": 2.5, "other": %s1%s}' % (b"[" * 900, b"]" * 900))


async def test_a_request_about_the_whole_server_is_answered_like_the_root(client: httpx.AsyncClient) -> None:
    async def status(line: str) -> bytes:
        return (await raw(port_of(client), f"{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode()))[9:12]

    assert await status("OPTIONS *") == await status("OPTIONS /") in (b"204", b"404")
    assert await status("GET *") == b"404"
