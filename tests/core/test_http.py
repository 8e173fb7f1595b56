"""What every answer has in common, asked over a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

import httpx
import msgspec
import pytest
from msgspec import Meta

from plaza.core.auth import Actor, Auth
from plaza.core.errors import Conflict, Forbidden, Gone, NotFound, TooFast, Unavailable
from plaza.core.http import App, make_app
from plaza.core.routes import Routes
from plaza.core.settings import Settings
from tests.web import client_of

SETTINGS = Settings(jwt_secret="s" * 32, api_key="k" * 32)
AUTH = Auth(SETTINGS)

route = Routes("things")


class Part(msgspec.Struct, forbid_unknown_fields=True):
    name: str


class NewThing(msgspec.Struct, forbid_unknown_fields=True):
    title: Annotated[str, Meta(min_length=1, max_length=20)]
    parts: list[Part] = []


class Thing(msgspec.Struct):
    id: int
    title: str
    author: str


class Shelf:
    def __init__(self) -> None:
        self.things: list[Thing] = []


ThingId = Annotated[int, Meta(ge=1)]


@route.post("/things", status=201)
async def create(actor: Actor, body: NewThing, shelf: Shelf) -> Thing:
    shelf.things.append(Thing(len(shelf.things) + 1, body.title, actor.name))
    return shelf.things[-1]


@route.get("/things/{thing}")
async def read(thing: ThingId, shelf: Shelf) -> Thing:
    if thing > len(shelf.things):
        raise NotFound("No such thing.", id=thing)
    return shelf.things[thing - 1]


@route.post("/things/{thing}/like")
async def like(actor: Actor, thing: ThingId) -> dict[str, Any]:
    return {"liked": thing, "by": actor.name}


ERRORS = {
    "conflict": Conflict("Taken."),
    "gone": Gone("Over."),
    "forbidden": Forbidden("Not yours."),
    "fast": TooFast("Slower.", retry_after=2.1),
    "away": Unavailable("Valkey is away.", retry_after=0.2),
    "bug": ZeroDivisionError("a secret of the inside"),
}


@route.get("/errors/{name}")
async def fail(name: str) -> None:
    raise ERRORS[name]


@pytest.fixture
def app() -> App:
    return make_app([route], {Shelf: Shelf()}, auth=AUTH, settings=SETTINGS)


@pytest.fixture
async def client(app: App) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(app, authorization=f"Bearer {AUTH.issue('ana', 'user')}") as client:
        yield client


def is_problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    document: dict[str, Any] = answer.json()
    assert (answer.status_code, document["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json"
    assert document["status"] == status
    assert document["request_id"] == answer.headers["x-request-id"]
    assert {"type", "title", "detail"} <= document.keys()
    return document


async def test_a_body_comes_in_typed_and_a_struct_goes_out_as_json(client: httpx.AsyncClient) -> None:
    made = await client.post("/things", json={"title": "Lamp"})
    assert (made.status_code, made.json()) == (201, {"id": 1, "title": "Lamp", "author": "ana"})
    assert made.headers["content-type"] == "application/json"
    assert (await client.get("/things/1")).json() == made.json()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "title"),
        ({"title": ""}, "title"),
        ({"title": 5}, "title"),
        ({"title": "x", "colour": 1}, "colour"),
        ({"title": "x", "parts": [{"name": "a"}, {"name": 2}]}, "parts[1].name"),
        ({"title": "x", "parts": [{"name": "a", "size": 2}]}, "parts[0].size"),
    ],
)
async def test_a_wrong_or_unknown_field_is_422_and_named(client: httpx.AsyncClient, body: Any, field: str) -> None:
    assert is_problem(await client.post("/things", json=body), 422, "invalid")["field"] == field


@pytest.mark.parametrize("body", [b"", b"{", b'{"title": 1', b'{"title": "\xff"}', b"[" * 100_000, b'{"title":"x"} x'])
async def test_what_is_not_json_is_400(client: httpx.AsyncClient, body: bytes) -> None:
    is_problem(await client.post("/things", content=body), 400, "bad_json")


@pytest.mark.parametrize("body", [b"", b"{}"])
async def test_a_route_that_needs_no_body_takes_none_or_an_empty_one(client: httpx.AsyncClient, body: bytes) -> None:
    assert (await client.post("/things/7/like", content=body)).json() == {"liked": 7, "by": "ana"}


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
    wrong_method = await client.delete("/things/1")
    is_problem(wrong_method, 405, "method_not_allowed")
    assert wrong_method.headers["allow"] == "GET, HEAD, OPTIONS"


async def test_a_bug_is_500_and_tells_nothing_of_the_inside(client: httpx.AsyncClient) -> None:
    answer = await client.get("/errors/bug")
    is_problem(answer, 500, "internal")
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text


async def test_no_or_bad_credentials_are_401(app: App) -> None:
    async with client_of(app) as client:
        nobody = await client.post("/things", json={"title": "x"})
        is_problem(nobody, 401, "unauthenticated")
        assert nobody.headers["www-authenticate"].startswith("Bearer")
        is_problem(await client.post("/things", headers={"authorization": "Bearer x"}), 401, "unauthenticated")
