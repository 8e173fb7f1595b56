"""Protection against hostile requests: Host, HSTS, nested tokens, metrics."""

from __future__ import annotations

import asyncio
import base64
import hmac
import io

import pytest

from plaza.core.auth import Auth
from plaza.core.errors import Unauthenticated
from plaza.core.settings import Settings
from plaza.core.telemetry import RequestLog
from tests.core.sample_domain import app_of
from tests.http_servers import client_of, serving
from tests.waiting import eventually

SECRET, API_KEY = "s" * 32, "k" * 32
SETTINGS = Settings(jwt_secret=SECRET, api_key=API_KEY, rate_limits=False)


async def status_of(url: str, request: bytes) -> int:
    """Send bytes as they are, and return the status of the response."""
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    line = await reader.readline()
    writer.close()
    await writer.wait_closed()
    return int(line.split()[1])


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /echo/x HTTP/1.1\r\n\r\n", 400),
        (b"GET /echo/x HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n\r\n", 400),
        (b"GET /echo/x HTTP/1.1\r\nHost: a.example\r\nHost: a.example\r\n\r\n", 400),
        (b"GET /echo/x HTTP/1.1\r\nHost: a.example, b.example\r\n\r\n", 400),
        (b"GET /echo/x HTTP/1.1\r\nHost: a.example\r\n\r\n", 200),
        (b"GET /echo/x HTTP/1.0\r\n\r\n", 200),
    ],
)
async def test_a_request_needs_exactly_one_host(request_bytes: bytes, status: int) -> None:
    async with serving(app_of()) as url:
        assert await status_of(url, request_bytes) == status


async def test_https_responses_have_hsts_and_http_responses_do_not() -> None:
    app = app_of(settings=Settings(jwt_secret=SECRET, api_key=API_KEY, trusted_proxies=("127.0.0.1",)))
    async with client_of(app) as client:
        plain = await client.get("/echo/x")
        secure = await client.get("/echo/x", headers={"x-forwarded-proto": "https"})
    assert "strict-transport-security" not in plain.headers
    assert secure.headers["strict-transport-security"] == "max-age=31536000"


def signed(header: bytes, payload: bytes) -> str:
    text = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in (header, payload))
    signature = base64.urlsafe_b64encode(hmac.digest(SECRET.encode(), text, "sha256")).rstrip(b"=")
    return (text + b"." + signature).decode()


@pytest.mark.parametrize("part", ["header", "payload"])
def test_a_deeply_nested_token_is_refused(part: str) -> None:
    claims = b'"alg":"HS256","username":"ana","role":"user","iat":1,"exp":2'
    nested = b"{" + claims + b',"aud":' + b"[" * 2_500 + b"]" * 2_500 + b"}"
    header = nested if part == "header" else b'{"alg":"HS256"}'
    payload = nested if part == "payload" else b'{"username":"ana","role":"user","iat":1,"exp":2}'
    with pytest.raises(Unauthenticated, match="The token is not valid"):
        Auth(SETTINGS).actor({"authorization": f"Bearer {signed(header, payload)}"})


async def test_metrics_are_computed_at_most_once_a_second() -> None:
    log = io.StringIO()
    async with client_of(app_of(observer=RequestLog(log, pretty=False))) as client:

        async def same_twice() -> bool:
            # Every request changes the metrics, so two responses are equal only if the second was not computed.
            return (await client.get("/metrics")).text == (await client.get("/metrics")).text

        await eventually(same_twice)

        async def changed() -> bool:
            return (await client.get("/metrics")).text != before

        before = (await client.get("/metrics")).text
        await eventually(changed)


async def test_metrics_can_be_for_admins_only() -> None:
    app = app_of(settings=Settings(jwt_secret=SECRET, api_key=API_KEY, rate_limits=False, metrics_access="admin"))
    async with client_of(app) as client:
        assert (await client.get("/metrics")).status_code == 401
        assert (await client.get("/metrics", headers={"x-api-key": API_KEY})).status_code == 200
        described = (await client.get("/openapi.json")).json()["paths"]["/metrics"]["get"]
    assert {"bearer": ["admin"]} in described["security"]
