"""The application: the life of a request from the first byte to the last, and what all routes have in common.

It speaks ASGI itself. What differs between routes was decided at start (`core/http/endpoint.py`), so that a request
pays for nothing that its route does not use; what is common reads from top to bottom in `_respond` and `_act`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from time import perf_counter
from typing import Any, Protocol

import structlog

from plaza import __version__
from plaza.core import metrics
from plaza.core.auth import Actor, Auth
from plaza.core.errors import Forbidden, MethodNotAllowed, NotFound, PlazaError, TooLarge, Unauthenticated, Unavailable
from plaza.core.http import meta_routes as about
from plaza.core.http.access import VIEWER, require_access
from plaza.core.http.endpoint import Endpoint, Reply
from plaza.core.http.headers import Cors, standard_headers, with_headers
from plaza.core.http.meta_routes import Documents
from plaza.core.http.openapi import describe
from plaza.core.http.problem_details import AddressTooLong, CrossOrigin, InternalError, problem
from plaza.core.http.request import Request
from plaza.core.http.request_body import ClientGone, Receive, read_body, throw_away
from plaza.core.http.responses import EVENTS, JSON, Response, as_bytes
from plaza.core.http.router import Leaf, Router
from plaza.core.http.routes import ErrorResponse, Routes
from plaza.core.http.streaming import Send, Watch, close, send_chunks, send_events
from plaza.core.http.trusted_proxies import Proxies
from plaza.core.idempotency import BufferedResponse, Idempotency, IdempotentRequest, caller_id
from plaza.core.rate_limits import Limiter, RateLimited
from plaza.core.settings import Settings
from plaza.core.valkey import REQUEST_USAGE
from plaza.core.wrong_type import ExplainError, unexplained

# No id or cursor of ours comes near; beyond it a request is a mistake or an attack.
LONGEST_PATH = 4096
LONGEST_QUERY = 8192

# What a proxy calls a request whose client left before the answer; only in the log, nobody receives it.
CLIENT_GONE = 499

# How old the gauge of requests in flight may be.
SAMPLE_SECONDS = 1.0

_ONE_TRIP = b'valkey;desc="1 round trip";dur='
_TRIPS = b'valkey;desc="%d round trips";dur='

log = structlog.get_logger("plaza.http")


# Reads a viewer token or a user token from headers; raises `Unauthenticated` where neither is valid.
ViewerAuth = Callable[[Mapping[str, str]], Actor | None]


class PageAccess(Protocol):
    """Recognises users of pages by their session cookie, and guards forms."""

    async def signed_in(self, request: Request) -> Actor | None:
        """The user of the session cookie; None if nobody is signed in."""

    async def run_form(self, request: Request, run: Callable[[], Awaitable[Any]]) -> Any:
        """Check that one of our pages made the form, then run its handler."""


class Observer(Protocol):
    def answered(self, request: Request, status: int, seconds: float) -> None:
        """A request is over."""


class App:
    """An ASGI application. `drain()` announces the end; `in_flight` says how many requests are not done yet."""

    def __init__(
        self,
        endpoints: Iterable[Endpoint],
        documents: Documents,
        *,
        auth: Auth,
        settings: Settings,
        limiter: Limiter | None,
        idempotency: Idempotency | None,
        observer: Observer | None,
        strays: Mapping[str, ErrorResponse],
        pages: PageAccess | None,
        viewer_auth: ViewerAuth | None,
        explain: ExplainError,
        draining: asyncio.Event | None = None,
    ) -> None:
        self.documents = documents
        self.strays = strays
        self.auth = auth
        self.limiter = limiter
        self.idempotency = idempotency
        self.observer = observer
        self.pages = pages
        self.viewer_auth = viewer_auth
        self.explain = explain
        self.proxies = Proxies(settings.trusted_proxies)
        self.cors = Cors(settings.cors_origins) if settings.cors_origins else None
        self.draining = draining or asyncio.Event()
        self.in_flight = 0
        self._sampling: asyncio.TimerHandle | None = None
        self.router: Router[Endpoint] = Router()
        for endpoint in endpoints:
            self.router.add(endpoint.route.method, endpoint.route.template, endpoint)

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await _other_protocol(scope, receive, send)
            return
        begun = perf_counter()
        request = Request(scope, self.proxies)
        mark = REQUEST_USAGE.set(request.usage)
        self.in_flight += 1
        if self._sampling is None:
            self._sampling = asyncio.get_running_loop().call_later(SAMPLE_SECONDS, self._sample)
        status = CLIENT_GONE
        try:
            reply = await self._reply(request, receive)
            status = reply.status
            await self._send(request, reply, begun, receive, send)
        except ClientGone:
            status = CLIENT_GONE
        finally:
            self.in_flight -= 1
            REQUEST_USAGE.reset(mark)
            if self.observer is not None:
                self.observer.answered(request, status, perf_counter() - begun)

    def _sample(self) -> None:
        """Tell the gauge how many are in flight, as long as there are any: counting each in and out costs more."""
        metrics.HTTP_IN_FLIGHT.set(self.in_flight)
        loop = asyncio.get_running_loop()
        self._sampling = loop.call_later(SAMPLE_SECONDS, self._sample) if self.in_flight else None

    def drain(self) -> None:
        """From now on connections close after their answer and event streams end; `/readyz` says 503."""
        self.draining.set()

    async def _reply(self, request: Request, receive: Receive) -> Reply:
        """The answer to a request, whatever happens on the way."""
        endpoint = None
        try:
            leaf = self._find(request)
            method = request.scope["method"]
            if method == "OPTIONS":
                return self._options(request, leaf)
            endpoint = leaf.methods.get("GET" if method == "HEAD" else method)
            if endpoint is None:
                raise _not_allowed(leaf)
            return await self._respond(request, endpoint, receive)
        except ClientGone:
            raise
        except Exception as error:
            said = await self.explain(error)
            return _failed(said, request, endpoint.route.on_error if endpoint else self._stray(request))

    def _find(self, request: Request) -> Leaf[Endpoint]:
        path: bytes = request.scope["raw_path"]
        if len(path) > LONGEST_PATH or len(request.scope["query_string"]) > LONGEST_QUERY:
            raise AddressTooLong
        found = self.router.find(path.decode("latin-1"))
        if found is None:
            raise NotFound("There is nothing at this path.")
        leaf, request.values = found
        request.template = leaf.template
        return leaf

    def _stray(self, request: Request) -> ErrorResponse | None:
        """How errors are told where there is no route: as they are told beside it."""
        first = "/" + request.path.split("/", 2)[1].partition("?")[0]
        return self.strays.get(first)

    async def _respond(self, request: Request, endpoint: Endpoint, receive: Receive) -> Reply:
        """Check access and the rate limit, then run the handler."""
        if endpoint.is_form:
            # Read first: a refused form is shown again with what the user wrote. Its access is checked in `_act`,
            # after the form itself.
            await self._read(request, endpoint, receive)
        elif endpoint.identifies:
            await self._authorize(request, endpoint)
        if self.limiter is None or endpoint.limit is None:
            return await self._act(request, endpoint, receive)
        taken = self.limiter.take(endpoint.limit, await self._limited_name(request, endpoint), request.address)
        if not endpoint.safe:
            request.limits = await taken
            return await self._act(request, endpoint, receive)
        # A read harms nobody if it turns out to be one too many, so it is not made to wait: the limiter's command
        # leaves with the handler's own, in one write, and its verdict is heard before anything is answered.
        verdict = asyncio.ensure_future(taken)
        try:
            return await self._act(request, endpoint, receive)
        finally:
            request.limits = await verdict

    async def _authorize(self, request: Request, endpoint: Endpoint) -> None:
        """Identify the caller and check the route's access: the one place that does. A refusal counts as a request."""
        try:
            request.actor = await self._identify(request, endpoint)
            require_access(endpoint.access, request.actor, by_cookie=endpoint.route.by_cookie)
        except (Unauthenticated, Forbidden):
            if self.limiter is not None and endpoint.limit is not None and request.limits is None:
                name = None if request.actor is None else request.actor.name
                with suppress(Unavailable):  # then nothing is counted, and the request is refused all the same
                    request.limits = await self.limiter.take(endpoint.limit, name, request.address)
            raise

    async def _identify(self, request: Request, endpoint: Endpoint) -> Actor | None:
        """The caller, by the credentials that the route accepts. Without I/O, except for session cookies."""
        if endpoint.route.by_cookie:
            return None if self.pages is None else await self.pages.signed_in(request)
        if endpoint.access is VIEWER and self.viewer_auth is not None:
            return self.viewer_auth(request.headers)
        return self.auth.actor(request.headers)

    async def _limited_name(self, request: Request, endpoint: Endpoint) -> str | None:
        """The user whose limit a request counts against. Where no credentials are needed, wrong ones are ignored."""
        if request.actor is None and (endpoint.is_form or not endpoint.route.by_cookie):
            with suppress(Unauthenticated):
                request.actor = await self._identify(request, endpoint)
        return None if request.actor is None else request.actor.name

    async def _act(self, request: Request, endpoint: Endpoint, receive: Receive) -> Reply:
        """Take the request's parts and run the handler: a read while someone waits for it, a write to its end."""
        if endpoint.safe:
            arguments = endpoint.arguments(request)
            with Watch(receive):
                return endpoint.reply(await endpoint.handler(*arguments))
        if endpoint.is_form:
            return endpoint.reply(await self._run_form(request, endpoint))
        await self._read(request, endpoint, receive)
        arguments = endpoint.arguments(request)
        key = request.headers.get("idempotency-key") if endpoint.route.idempotent is True else None
        if key is None or self.idempotency is None:
            return endpoint.reply(await endpoint.handler(*arguments))
        return await self._once(self.idempotency, key, request, endpoint, arguments)

    async def _run_form(self, request: Request, endpoint: Endpoint) -> Any:
        assert self.pages is not None, "forms need `pages`"

        async def run() -> Any:
            await self._authorize(request, endpoint)
            return await endpoint.handler(*endpoint.arguments(request))

        return await self.pages.run_form(request, run)

    async def _read(self, request: Request, endpoint: Endpoint, receive: Receive) -> None:
        self._refuse_strange_pages(request)
        try:
            request.body = await read_body(request.headers, receive, endpoint.body_limit)
        except TooLarge:
            request.is_cut_off = True
            raise

    async def _once(
        self, idempotency: Idempotency, key: str, request: Request, endpoint: Endpoint, arguments: list[Any]
    ) -> Reply:
        """Run the handler, unless the same request was answered before."""
        made: list[Reply] = []

        async def work(operation: str) -> BufferedResponse:
            request.operation = operation
            try:
                reply = endpoint.reply(await endpoint.handler(*arguments))
            except Exception as error:
                reply = _failed(await self.explain(error), request, endpoint.route.on_error)
            assert isinstance(reply.body, bytes), "a stream cannot be given again"
            made.append(reply)
            headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in reply.headers)
            return BufferedResponse(reply.status, headers, reply.body)

        target = f"{request.path}?{request.scope['query_string'].decode('latin-1')}"
        caller = caller_id(request.actor, request.address)
        if endpoint.route.caller is not None:
            caller = f"{caller} {endpoint.route.caller(request)}"
        keyed = IdempotentRequest.from_request(caller, key, request.method, target, request.body)
        kept = await idempotency.once(keyed, work)
        return made[0] if made else Reply(kept.status, with_headers(standard_headers(None), kept.headers), kept.body)

    def _refuse_strange_pages(self, request: Request) -> None:
        """A page of a site that no setting names does not act here with its reader's cookie. Browsers tell us."""
        if request.headers.get("sec-fetch-site") == "cross-site" and not (
            self.cors is not None and self.cors.allows(request.headers.get("origin", ""))
        ):
            raise CrossOrigin("Pages of other sites may not do this.")

    def _options(self, request: Request, leaf: Leaf[Endpoint]) -> Reply:
        allowed = _methods(leaf)
        headers = [(b"allow", allowed.encode())]
        if self.cors is not None:
            headers += self.cors.preflight(request.headers, allowed)
        return Reply(204, (*standard_headers(None), *headers), b"")

    async def _send(self, request: Request, reply: Reply, begun: float, receive: Receive, send: Send) -> None:
        usage, body = request.usage, reply.body
        headers = [*reply.headers, (b"x-request-id", request.request_id.encode())]
        if isinstance(body, bytes) and reply.status not in (204, 304):
            headers.append((b"content-length", b"%d" % len(body)))
        timing = _ONE_TRIP if usage.trips == 1 else _TRIPS % usage.trips
        spent = perf_counter() - begun
        headers.append((b"server-timing", timing + b"%.3f, total;dur=%.3f" % (usage.seconds * 1000, spent * 1000)))
        if request.limits is not None:
            headers += [(name.encode(), value.encode()) for name, value in request.limits.headers()]
        if self.cors is not None:
            headers += self.cors.headers(request.headers)
        if self.draining.is_set():
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        if request.is_cut_off:
            await send({"type": "http.response.body", "body": body, "more_body": True})
            await throw_away(receive)
            await send({"type": "http.response.body", "body": b""})
        elif isinstance(body, bytes):
            await send({"type": "http.response.body", "body": body})
        elif request.scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
            await close(body)
        else:
            await self._stream(request, reply, body, receive, send)

    async def _stream(
        self, request: Request, reply: Reply, items: AsyncIterator[Any], receive: Receive, send: Send
    ) -> None:
        try:
            if (b"content-type", EVENTS.encode()) in reply.headers:
                request.streams = True
                await send_events(items, receive, send, self.draining)
            else:
                await send_chunks(items, receive, send)
        except (ClientGone, asyncio.CancelledError):
            raise
        except Exception as error:
            # The status is out. All that is left is to break off, so that a part is not taken for the whole.
            said = await self.explain(error)
            trace = None if isinstance(said, PlazaError) else error
            log.error(
                "stream broke", request_id=request.request_id, route=request.template, exc_info=trace, error=str(said)
            )
        finally:
            await close(items)


def make_app(
    routes: Iterable[Routes],
    services: Mapping[type, Any] | None = None,
    *,
    auth: Auth,
    settings: Settings,
    limiter: Limiter | None = None,
    idempotency: Idempotency | None = None,
    observer: Observer | None = None,
    strays: Mapping[str, ErrorResponse] | None = None,
    pages: PageAccess | None = None,
    viewer_auth: ViewerAuth | None = None,
    explain: ExplainError = unexplained,
    draining: asyncio.Event | None = None,
) -> App:
    """The ASGI application of these routes, with `/openapi.json`, `/docs` and `/metrics`.

    `services` are what handlers ask for by type; `observer` hears of each response; `strays` says, by the first segment
    of a path, how errors look where there is no route; `pages` and `viewer_auth` identify callers of routes that take
    the session cookie or a viewer token; `explain` says what an error means, where that has to be looked up;
    `draining` is set by `App.drain`, so that others see it too.
    """
    groups = (*routes, about.route)
    endpoints: list[Endpoint] = []
    shown = Documents(lambda: describe(groups, endpoints, __version__))
    known = {**(services or {}), Documents: shown}
    endpoints += [Endpoint(route, known) for group in groups for route in group.routes]
    return App(
        endpoints,
        shown,
        auth=auth,
        settings=settings,
        limiter=limiter if settings.rate_limits else None,
        idempotency=idempotency,
        observer=observer,
        strays=strays or {},
        pages=pages,
        viewer_auth=viewer_auth,
        explain=explain,
        draining=draining,
    )


def _methods(leaf: Leaf[Endpoint]) -> str:
    methods = {*leaf.methods, "OPTIONS", *(["HEAD"] if "GET" in leaf.methods else [])}
    return ", ".join(sorted(methods))


def _not_allowed(leaf: Leaf[Endpoint]) -> MethodNotAllowed:
    allowed = _methods(leaf)
    return MethodNotAllowed(f"This path takes {allowed}.", allowed=allowed.split(", "))


def _failed(error: Exception, request: Request, on_error: ErrorResponse | None) -> Reply:
    """What an exception says to the client. One that nobody foresaw says nothing but where to look."""
    if not isinstance(error, PlazaError):
        log.error(
            "unexpected", request_id=request.request_id, method=request.method, route=request.template, exc_info=error
        )
        error = InternalError("Something went wrong; the request id finds it in our log.")
    if isinstance(error, RateLimited):
        request.limits = error.limit
        metrics.HTTP_RATE_LIMITED.labels(error.limit.kind).inc()
    answer: Response[Any] = on_error(error, request) if on_error else problem(error, request.request_id)
    headers = with_headers(standard_headers(answer.media_type or JSON), answer.headers)
    return Reply(answer.status or error.status, headers, as_bytes(answer.body))


async def _other_protocol(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Start and stop are acknowledged; a websocket is refused, which servers answer with 403."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close"})
        return
    assert scope["type"] == "lifespan", scope["type"]
    for phase in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{phase}.complete"})
