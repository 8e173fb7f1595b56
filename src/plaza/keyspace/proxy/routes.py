"""Four doors to one rule set: the document's `POST /` and `POST /redis/write`, and the two forms of Upstash clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from plaza.core.auth import Actor
from plaza.core.errors import PlazaError
from plaza.core.http.access import AUTHENTICATED
from plaza.core.http.problem_details import problem
from plaza.core.http.request import Request
from plaza.core.http.responses import JSON, Response
from plaza.core.http.routes import Options, Routes
from plaza.keyspace.proxy.commands import Refused
from plaza.keyspace.proxy.encoding import (
    BODY_BYTES,
    as_base64,
    as_text,
    command_of,
    commands_in,
    in_place,
    is_single,
    parse,
    wrapped,
)
from plaza.keyspace.proxy.service import Proxy

route = Routes("proxy", about="Valkey over HTTP, by the rules of the catalogue.")


def _on_error(error: PlazaError, request: Request) -> Response[Any]:
    """Clients of this protocol look for `error`. All but the failure of a command is a problem document besides."""
    if isinstance(error, Refused):
        return Response({"error": error.detail}, status=error.status)
    answer = problem(error, request.request_id)
    assert isinstance(answer.body, dict)
    answer.body["error"] = f"ERR {error.detail}"
    return answer


_OPTIONS = Options(access=AUTHENTICATED, limit="proxy", takes=JSON, body_limit=BODY_BYTES, on_error=_on_error)


def _string(request: Request) -> Callable[[bytes], str]:
    return as_base64 if request.headers.get("upstash-encoding", "").lower() == "base64" else as_text


async def _one(found: list[msgspec.Raw], actor: Actor, request: Request, proxy: Proxy) -> Response[Any]:
    (outcome,) = await proxy.run(actor, request.address, [command_of(found)])
    if isinstance(outcome, Refused):
        raise outcome
    return Response(wrapped(outcome, _string(request)))


@route.post("/", **_OPTIONS)
async def run(body: bytes, actor: Actor, request: Request, proxy: Proxy) -> Response[Any]:
    """One command, or an array of commands.

    A command gives `{"result": …}` or `{"error": "ERR …"}`, an array the answers in a row, with the error of what was
    refused in its place. `Upstash-Encoding: base64` asks for strings in base64.
    """
    found = parse(body)
    if is_single(found):
        return await _one(found, actor, request, proxy)
    return Response(in_place(await proxy.run(actor, request.address, commands_in(found)), _string(request)))


@route.post("/redis/write", **_OPTIONS)
async def write(body: bytes, actor: Actor, request: Request, proxy: Proxy) -> Response[Any]:
    """The same; an array gives `{"results": […], "username": …}`, with null for the API key."""
    found = parse(body)
    if is_single(found):
        return await _one(found, actor, request, proxy)
    results = in_place(await proxy.run(actor, request.address, commands_in(found)), _string(request))
    return Response({"results": results, "username": None if actor.via_key else actor.name})


@route.post("/pipeline", **_OPTIONS)
async def pipeline(body: bytes, actor: Actor, request: Request, proxy: Proxy) -> Response[Any]:
    """Commands in a row, as Upstash clients send them: `[{"result": …}, {"error": …}]`. A failure stops no other."""
    outcomes = await proxy.run(actor, request.address, commands_in(parse(body)))
    return Response([wrapped(outcome, _string(request)) for outcome in outcomes])


@route.post("/multi-exec", **_OPTIONS)
async def multi_exec(body: bytes, actor: Actor, request: Request, proxy: Proxy) -> Response[Any]:
    """Commands in one atomic step, as Upstash clients send them. If one is refused, none is performed."""
    outcomes = await proxy.transact(actor, request.address, commands_in(parse(body)))
    return Response([wrapped(outcome, _string(request)) for outcome in outcomes])
