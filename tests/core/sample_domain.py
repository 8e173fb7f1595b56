"""A small domain that lives in the tests: things on a shelf, and routes that show what routes can do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from plaza.core.auth import Actor, Auth
from plaza.core.errors import Conflict, Forbidden, Gone, NotFound, PlazaError, TooFast, Unavailable
from plaza.core.http.access import AUTHENTICATED, PUBLIC
from plaza.core.http.app import App, make_app
from plaza.core.http.app_options import AppOptions
from plaza.core.http.request import Request
from plaza.core.http.responses import EVENTS, Response, ServerSentEvent
from plaza.core.http.routes import ParameterName, Routes
from plaza.core.paging import Page, Pagination
from plaza.core.settings import Settings
from plaza.core.valkey import ConnectionLost, Valkey

SETTINGS = Settings(jwt_secret="s" * 32, api_key="k" * 32)
AUTH = Auth(SETTINGS)

route = Routes("things", about="Things on a shelf.")

ThingId = Annotated[int, Meta(ge=1, description="A thing.", examples=[7])]


class Part(msgspec.Struct, forbid_unknown_fields=True):
    name: str


class NewThing(msgspec.Struct, forbid_unknown_fields=True):
    """Body to create a thing."""

    title: Annotated[str, Meta(min_length=1, max_length=20, description="What it is called.")]
    parts: list[Part] = []


class Change(msgspec.Struct, forbid_unknown_fields=True):
    title: str | None = None


class Thing(msgspec.Struct):
    id: int
    title: str
    author: str


class Things(msgspec.Struct):
    things: list[Thing]
    pagination: Pagination


@dataclass
class Shelf:
    """The things that handlers change, and the calls that they made."""

    things: list[Thing] = field(default_factory=list)
    calls: list[Request] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    valkey: Valkey | None = None


@route.post("/things", access=AUTHENTICATED, status=201, idempotent=True, example={"title": "Desk lamp"})
async def create_thing(actor: Actor, body: NewThing, request: Request, shelf: Shelf) -> Thing:
    """Put a thing on the shelf.

    It gets the next number.
    """
    shelf.calls.append(request)
    if body.title == "taken":
        raise Conflict("There is one already.")
    if body.title == "away":
        raise Unavailable("Valkey is unavailable.")
    shelf.things.append(Thing(len(shelf.things) + 1, body.title, actor.name))
    return shelf.things[-1]


@route.get("/things", access=PUBLIC)
async def list_things(
    page: Page,
    shelf: Shelf,
    colour: Literal["red", "blue"] | None = None,
    tag: list[str] = [],  # noqa: B006
    from_: int = 0,
    per_shelf: Annotated[int, ParameterName("perShelf"), Meta(le=9)] = 3,
    includeUser: bool = True,  # noqa: N803
) -> dict[str, Any]:
    """All things."""
    return {
        "page": page,
        "colour": colour,
        "tag": tag,
        "from": from_,
        "perShelf": per_shelf,
        "includeUser": includeUser,
    }


@route.get("/things/{thing}", access=PUBLIC)
async def get_thing(thing: ThingId, shelf: Shelf) -> Thing:
    if thing > len(shelf.things):
        raise NotFound("No such thing.", id=thing)
    return shelf.things[thing - 1]


@route.patch("/things/{thing}", access=AUTHENTICATED)
async def change_thing(actor: Actor, thing: ThingId, body: Change) -> Change:
    return body


@route.delete("/things/{thing}", access=AUTHENTICATED)
async def delete_thing(actor: Actor, thing: ThingId) -> None:
    """Delete a thing."""


@route.post("/things/{thing}/like", access=AUTHENTICATED)
async def like_thing(actor: Actor, thing: ThingId) -> dict[str, Any]:
    return {"liked": thing, "by": actor.name}


@route.post("/uploads", access=PUBLIC, body_limit=1000)
async def upload(body: bytes) -> dict[str, int]:
    return {"size": len(body)}


@route.get("/echo/{text}", access=PUBLIC)
async def echo(text: str) -> dict[str, str]:
    return {"text": text}


@route.get("/users/{username}/posts", access=PUBLIC)
async def posts_of(username: str) -> dict[str, str]:
    return {"posts_of": username}


@route.get("/users/me/export", access=AUTHENTICATED)
async def export(actor: Actor) -> dict[str, str]:
    return {"export_of": actor.name}


@route.get("/users/{username}", access=PUBLIC)
async def user(username: str) -> dict[str, str]:
    return {"user": username}


@route.get("/me", access=PUBLIC)
async def whoami(actor: Actor | None, request: Request) -> dict[str, Any]:
    return {"name": actor and actor.name, "address": request.address, "secure": request.secure}


ERRORS: dict[str, Exception] = {
    "conflict": Conflict("Taken."),
    "gone": Gone("Over."),
    "forbidden": Forbidden("Not yours."),
    "fast": TooFast("Slower.", retry_after=2.1),
    "away": Unavailable("Valkey is unavailable.", retry_after=0.2),
    "lost": ConnectionLost("Valkey at db.internal:6379 closed the connection.", may_have_run=True),
    "bug": ZeroDivisionError("a secret of the inside"),
}


@route.get("/errors/{name}", access=PUBLIC)
async def fail(name: str) -> None:
    raise ERRORS[name]


def plain_error(error: PlazaError, request: Request) -> Response[Any]:
    return Response({"error": f"ERR {error.detail}"}, status=error.status)


@route.post("/other-protocol", access=AUTHENTICATED, on_error=plain_error)
async def other_protocol(actor: Actor, body: NewThing) -> None:
    """Has errors in a form of its own."""


@route.get("/slow", access=PUBLIC)
async def slow_read(shelf: Shelf) -> dict[str, bool]:
    return await _slow(shelf)


@route.post("/slow", access=PUBLIC)
async def slow_write(shelf: Shelf) -> dict[str, bool]:
    return await _slow(shelf)


async def _slow(shelf: Shelf) -> dict[str, bool]:
    shelf.events.append("begun")
    shelf.begun.set()
    try:
        await shelf.go_on.wait()
    except asyncio.CancelledError:
        shelf.events.append("cancelled")
        raise
    shelf.events.append("done")
    return {"done": True}


@route.get("/costly", access=PUBLIC, limit_first=True)
async def costly(shelf: Shelf) -> dict[str, bool]:
    shelf.events.append("costly")
    return {"done": True}


@route.get("/trips/{count}", access=PUBLIC)
async def trips(count: int, shelf: Shelf) -> dict[str, int]:
    assert shelf.valkey is not None
    for _ in range(count):
        await shelf.valkey.call("PING")
    return {"trips": count}


@route.get("/events", access=PUBLIC, media_type=EVENTS)
async def events(shelf: Shelf, count: int = 3) -> AsyncIterator[ServerSentEvent[Any]]:
    try:
        for i in range(count):
            yield ServerSentEvent(data={"n": i}, event="tick\nevil: 1", id=str(i), retry_ms=500)
        yield ServerSentEvent(data=Thing(1, "Lamp", "ana"))
        shelf.begun.set()
        await shelf.go_on.wait()
    finally:
        shelf.events.append("closed")


@route.get("/rows.csv", access=PUBLIC, media_type="text/csv; charset=utf-8")
async def rows(shelf: Shelf, count: int = 3) -> AsyncIterator[str]:
    try:
        for i in range(count):
            yield f"row {i}\n"
        shelf.begun.set()
        if count > 100:
            await shelf.go_on.wait()
    finally:
        shelf.events.append("closed")


@route.get("/broken.csv", access=PUBLIC, media_type="text/csv")
async def broken() -> AsyncIterator[bytes]:
    yield b"half of "
    raise ZeroDivisionError("a secret of the inside")


@route.get("/page", access=PUBLIC)
async def page() -> Response[str]:
    headers = [("content-security-policy", "default-src 'self'"), ("set-cookie", "a=1"), ("set-cookie", "b=2")]
    return Response("<p>ü</p>", status=203, headers=headers, media_type="text/html; charset=utf-8")


@route.get("/split", access=PUBLIC)
async def split() -> Response[str]:
    return Response("x", headers=[("location", "/a\r\nset-cookie: evil=1")])


def app_of(shelf: Shelf | None = None, settings: Settings = SETTINGS, **options: Any) -> App:
    return make_app([route], {Shelf: shelf or Shelf()}, auth=AUTH, settings=settings, options=AppOptions(**options))


def token(name: str = "ana") -> dict[str, str]:
    return {"authorization": f"Bearer {AUTH.issue(name, 'user')}"}
