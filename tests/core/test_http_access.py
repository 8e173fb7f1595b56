"""Credentials, rate limits and idempotency keys over HTTP, with a real Valkey."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import msgspec
import pytest

from plaza.core.auth import ADMIN, USER, Actor, Auth
from plaza.core.errors import NotFound
from plaza.core.functions import Functions
from plaza.core.http.access import AUTHENTICATED, PUBLIC
from plaza.core.http.app import make_app
from plaza.core.http.app_options import AppOptions
from plaza.core.http.routes import Routes
from plaza.core.idempotency import Idempotency
from plaza.core.rate_limits import LIBRARY, Limiter, Policy, Quota
from plaza.core.revocations import Revocations
from plaza.core.settings import Settings
from plaza.core.valkey import Valkey
from tests.http_servers import client_of
from tests.servers import running_server
from tests.timeouts import connect_with_retries

API_KEY = "the api key of a server"
POLICIES = {
    "read": Policy(Quota(3, 60), Quota(6, 60)),
    "write": Policy(Quota(1_000, 60), Quota(6_000, 60)),
}


class NewNamedThing(msgspec.Struct, forbid_unknown_fields=True):
    name: str


class NamedThing(msgspec.Struct):
    id: int
    name: str
    by: str


class CountingThings:
    """A service that counts what it made."""

    def __init__(self) -> None:
        self.made: list[str] = []

    async def make(self, actor: Actor, name: str) -> NamedThing:
        await asyncio.sleep(0.02)  # long enough for a hundred others to arrive
        if name == "missing":
            self.made.append(name)
            raise NotFound("There is no such thing to copy.")
        self.made.append(name)
        return NamedThing(len(self.made), name, actor.name)


class Who(msgspec.Struct):
    name: str
    role: str


class AppUnderTest:
    """The application and what it stands on."""

    def __init__(self, client: httpx.AsyncClient, auth: Auth, things: CountingThings) -> None:
        self.client = client
        self.auth = auth
        self.things = things

    def ana(self, **more: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.auth.issue('ana', USER)}", **more}


def routes() -> Routes:
    route = Routes("things")

    @route.get("/who", access=AUTHENTICATED)
    async def who(actor: Actor) -> Who:
        return Who(actor.name, actor.role)

    @route.get("/open", access=PUBLIC, limit=None)
    async def open_to_all(actor: Actor | None) -> Who:
        return Who("", "") if actor is None else Who(actor.name, actor.role)

    @route.post("/things", access=AUTHENTICATED, status=201, idempotent=True)
    async def make(actor: Actor, body: NewNamedThing, things: CountingThings) -> NamedThing:
        return await things.make(actor, body.name)

    return route


async def running_app(valkey: Valkey, folder: Path) -> AsyncIterator[AppUnderTest]:
    settings = Settings(data_dir=folder, jwt_secret="x" * 32, api_key=API_KEY)
    revocations, things = Revocations(valkey), CountingThings()
    auth, functions = Auth(settings, revocations), Functions(valkey, [LIBRARY])
    await functions.load()
    await revocations.start()
    app = make_app(
        [routes()],
        {CountingThings: things},
        auth=auth,
        settings=settings,
        options=AppOptions(limiter=Limiter(functions, policies=POLICIES), idempotency=Idempotency(valkey)),
    )
    async with client_of(app) as client:
        yield AppUnderTest(client, auth, things)
    await revocations.close()


@pytest.fixture
async def app(valkey: Valkey, tmp_path: Path) -> AsyncIterator[AppUnderTest]:
    async for app in running_app(valkey, tmp_path):
        yield app


async def test_a_token_in_each_header_and_the_api_key_are_accepted(app: AppUnderTest) -> None:
    token = app.auth.issue("ana", USER)
    for header, value in (("Authorization", f"Bearer {token}"), ("X-Authorization", token), ("X-Access-Token", token)):
        answer = await app.client.get("/open", headers={header: value})
        assert answer.json() == {"name": "ana", "role": "user"}
    answer = await app.client.get("/open", headers={"X-API-Key": API_KEY})
    assert answer.json() == {"name": "@api", "role": ADMIN}
    assert (await app.client.get("/open")).json() == {"name": "", "role": ""}
    assert (await app.client.get("/who")).status_code == 401


async def test_wrong_credentials_are_401_also_where_none_are_needed(app: AppUnderTest) -> None:
    answer = await app.client.get("/open", headers={"x-access-token": "wrong"})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert answer.json()["code"] == "unauthenticated"
    assert "wrong" not in answer.text


@pytest.mark.parametrize("header", ["authorization", "x-access-token", "x-api-key"])
async def test_a_header_sent_twice_is_two_credentials(app: AppUnderTest, header: str) -> None:
    tokens = [app.auth.issue(name, USER) for name in ("ana", "bob")]
    pairs = {
        "authorization": [f"Bearer {token}" for token in tokens],
        "x-access-token": tokens,
        "x-api-key": ["wrong", API_KEY],
    }[header]
    for values in (pairs, pairs[::-1]):
        answer = await app.client.get("/open", headers=[(header, value) for value in values])
        assert answer.status_code == 401


async def test_a_suspended_users_token_is_401_at_once_and_a_new_one_works(app: AppUnderTest) -> None:
    old = app.ana()
    assert (await app.client.get("/open", headers=old)).status_code == 200
    await app.auth.revoke_tokens("ana")
    assert (await app.client.get("/open", headers=old)).status_code == 401
    assert (await app.client.get("/open", headers=app.ana())).status_code == 200


async def test_of_a_hundred_equal_concurrent_posts_exactly_one_creates_something(app: AppUnderTest) -> None:
    headers = app.ana(**{"idempotency-key": "order-1"})
    body = {"name": "lamp"}
    answers = await asyncio.gather(*(app.client.post("/things", headers=headers, json=body) for _ in range(100)))
    assert app.things.made == ["lamp"]
    statuses = Counter(answer.status_code for answer in answers)
    assert set(statuses) <= {201, 409}
    fresh = [a for a in answers if a.status_code == 201 and "idempotency-replayed" not in a.headers]
    assert len(fresh) == 1
    again = await app.client.post("/things", headers=headers, json=body)
    assert again.status_code == 201
    assert again.headers["idempotency-replayed"] == "true"
    assert again.headers["x-request-id"] != fresh[0].headers["x-request-id"]
    assert again.content == fresh[0].content
    assert again.headers["content-type"] == fresh[0].headers["content-type"]
    assert app.things.made == ["lamp"]


async def test_a_key_means_one_request_of_one_caller(app: AppUnderTest) -> None:
    key = {"idempotency-key": "order-1"}
    first = await app.client.post("/things", headers=app.ana(**key), json={"name": "lamp"})
    other = await app.client.post("/things", headers=app.ana(**key), json={"name": "desk"})
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    bob = {"x-access-token": app.auth.issue("bob", USER), **key}
    theirs = await app.client.post("/things", headers=bob, json={"name": "desk"})
    assert (first.json()["by"], theirs.json()["by"]) == ("ana", "bob")
    for bad in ("", "x" * 256):
        answer = await app.client.post("/things", headers=app.ana(**{"idempotency-key": bad}), json={"name": "x"})
        assert answer.status_code == 422
    assert app.things.made == ["lamp", "desk"]


async def test_a_refused_request_is_not_stored_and_a_result_is(app: AppUnderTest) -> None:
    headers = app.ana(**{"idempotency-key": "order-1"})
    assert (await app.client.post("/things", headers=headers, json={"nam": "lamp"})).status_code == 422
    assert (await app.client.post("/things", headers=headers, content=b"{")).status_code == 400
    assert (await app.client.post("/things", headers=headers, json={"name": "missing"})).status_code == 404
    again = await app.client.post("/things", headers=headers, json={"name": "missing"})
    assert (again.status_code, again.headers["idempotency-replayed"]) == (404, "true")
    assert again.headers["content-type"] == "application/problem+json"
    assert app.things.made == ["missing"]


async def test_every_response_has_the_quota_and_too_many_requests_are_429(app: AppUnderTest) -> None:
    headers = app.ana()
    answers = [await app.client.get("/who", headers=headers) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert [answer.headers["ratelimit"].split(";t=")[0] for answer in answers] == [
        '"read";r=2',
        '"read";r=1',
        '"read";r=0',
        '"read";r=0',
    ]
    assert {answer.headers["ratelimit-policy"] for answer in answers} == {'"read";q=3;w=60'}
    assert 1 <= int(answers[3].headers["retry-after"]) <= 20
    assert answers[3].headers["ratelimit"] == f'"read";r=0;t={answers[3].headers["retry-after"]}'
    assert answers[3].json()["code"] == "too_fast"


async def test_servers_with_the_api_key_are_not_limited(app: AppUnderTest) -> None:
    answers = [await app.client.get("/who", headers={"x-api-key": API_KEY}) for _ in range(20)]
    assert {answer.status_code for answer in answers} == {200}


async def test_an_unreachable_valkey_is_503_and_never_500(tmp_path: Path) -> None:
    with running_server() as server:
        valkey = await connect_with_retries(server.url, queue_timeout=0.2)
        async for app in running_app(valkey, tmp_path):
            server.stop()
            for request in (
                app.client.get("/who", headers=app.ana()),
                app.client.post("/things", headers=app.ana(**{"idempotency-key": "k"}), json={"name": "x"}),
            ):
                answer = await request
                assert answer.status_code == 503
                assert int(answer.headers["retry-after"]) >= 1
            assert (await app.client.get("/open", headers=app.ana())).status_code == 200  # needs no Valkey
        await valkey.close()
