"""The proxy's routes: `POST /` and `POST /redis/write` of the document, and the two of Upstash clients."""

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
    MAX_BODY_BYTES,
    Command,
    CommandResult,
    CommandResults,
    Commands,
    Reply,
    as_base64,
    as_text,
    decode_command,
    decode_commands,
    is_single,
    parse_body,
    to_list,
    to_object,
)
from plaza.keyspace.proxy.service import Proxy

route = Routes("proxy", about="Valkey commands over HTTP, limited by the access rules of the key catalogue.")


def _on_error(error: PlazaError, request: Request) -> Response[Any]:
    """Upstash clients read `error`. Errors other than a refused command are problem documents with `error` added."""
    if isinstance(error, Refused):
        return Response({"error": error.detail}, status=error.status)
    response = problem(error, request.request_id)
    assert isinstance(response.body, dict)
    response.body["error"] = f"ERR {error.detail}"
    return response


def _options(body_schema: Any, example: Any) -> Options:
    return Options(
        access=AUTHENTICATED,
        logged=False,  # most commands are reads; the service records the writes of API keys
        limit="proxy",
        request_media_type=JSON,
        body_limit=MAX_BODY_BYTES,
        body_schema=body_schema,
        example=example,
        other_responses={400: CommandResult},
        on_error=_on_error,
    )


def _string_encoder(request: Request) -> Callable[[bytes], str]:
    return as_base64 if request.headers.get("upstash-encoding", "").lower() == "base64" else as_text


async def _run_one(items: list[msgspec.Raw], actor: Actor, request: Request, proxy: Proxy) -> CommandResult:
    (outcome,) = await proxy.run(actor, request.address, [decode_command(items)])
    if isinstance(outcome, Refused):
        raise outcome
    return to_object(outcome, _string_encoder(request))


@route.post("/", **_options(Command | Commands, ["HGET", "user:me", "bio"]))
async def run_commands(
    body: bytes, actor: Actor, request: Request, proxy: Proxy
) -> Response[CommandResult | list[Reply]]:
    """Run a command or an array of commands.

    One command returns `{"result": …}` or `{"error": "ERR …"}`. An array returns the results in order, with the error
    text in the place of a refused command. `Upstash-Encoding: base64` returns strings in base64.
    """
    items = parse_body(body)
    if is_single(items):
        return Response(await _run_one(items, actor, request, proxy))
    return Response(to_list(await proxy.run(actor, request.address, decode_commands(items)), _string_encoder(request)))


@route.post("/redis/write", **_options(Command | Commands, [["HSET", "user:me", "theme", "dark"]]))
async def run_redis_commands(
    body: bytes, actor: Actor, request: Request, proxy: Proxy
) -> Response[CommandResult | CommandResults]:
    """Run a command or an array of commands; an array returns `{"results": […], "username": …}`.

    `username` is null for the API key.
    """
    items = parse_body(body)
    if is_single(items):
        return Response(await _run_one(items, actor, request, proxy))
    results = to_list(await proxy.run(actor, request.address, decode_commands(items)), _string_encoder(request))
    return Response(CommandResults(results, None if actor.via_key else actor.name))


@route.post("/pipeline", **_options(Commands, [["HGET", "user:me", "bio"], ["ZCARD", "explore:feed"]]))
async def run_pipeline(body: bytes, actor: Actor, request: Request, proxy: Proxy) -> Response[list[CommandResult]]:
    """Run commands in order, as Upstash clients send them.

    Returns `[{"result": …}, {"error": …}]`. A failed command does not stop the others.
    """
    outcomes = await proxy.run(actor, request.address, decode_commands(parse_body(body)))
    return Response([to_object(outcome, _string_encoder(request)) for outcome in outcomes])


@route.post("/multi-exec", **_options(Commands, [["HSET", "user:me", "theme", "dark"], ["HGET", "user:me", "theme"]]))
async def run_transaction(body: bytes, actor: Actor, request: Request, proxy: Proxy) -> Response[list[CommandResult]]:
    """Run commands in one transaction, as Upstash clients send them. If one is refused, none is run."""
    outcomes = await proxy.transact(actor, request.address, decode_commands(parse_body(body)))
    return Response([to_object(outcome, _string_encoder(request)) for outcome in outcomes])
