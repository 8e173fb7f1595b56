"""The application: from an incoming request to its response.

What differs between routes is decided once (`bound_route.py`), so a request pays only for what its route uses. What
all routes share is here: routing, access, rate limits, idempotency keys and errors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from time import perf_counter
from typing import Any

import structlog

from plaza import __version__
from plaza.core import metrics
from plaza.core.asyncapi import describe_events
from plaza.core.auth import Auth
from plaza.core.errors import BadRequest, Forbidden, Invalid, MethodNotAllowed, NotFound, PlazaError
from plaza.core.http import meta_routes
from plaza.core.http.access import NEEDS_MFA, SESSION, AdminMfaRequired
from plaza.core.http.admin_log import admin_log_entry
from plaza.core.http.app_options import AppOptions
from plaza.core.http.authorizer import Authorizer
from plaza.core.http.bound_route import BoundRoute, EncodedResponse
from plaza.core.http.exchange import AsgiExchange, ClientDisconnected, Exchange, Receive, Send
from plaza.core.http.handler_signature import MissingService
from plaza.core.http.headers import Cors, standard_headers, with_headers
from plaza.core.http.meta_routes import ApiDocs, MetricsCache
from plaza.core.http.mounting import mounted, unmounted
from plaza.core.http.openapi.document import describe
from plaza.core.http.openapi.operations import require_unique_operation_ids
from plaza.core.http.problem_details import CrossOrigin, InternalError, UrlTooLong, problem
from plaza.core.http.request import Request
from plaza.core.http.request_body import read_request_body, sends_files
from plaza.core.http.request_tracing import end_trace, start_trace
from plaza.core.http.response_sender import ResponseSender
from plaza.core.http.responses import JSON, Response, as_bytes
from plaza.core.http.router import RouteNode, Router
from plaza.core.http.routes import ErrorResponse, Route, Routes
from plaza.core.http.same_origin import require_same_origin
from plaza.core.http.streaming import CancelOnDisconnect
from plaza.core.http.trusted_proxies import TrustedProxies
from plaza.core.idempotency import BufferedResponse, Idempotency, IdempotentRequest, caller_id, require_valid_key
from plaza.core.rate_limits import RateLimited
from plaza.core.root_path import ROOT_PATH
from plaza.core.settings import Settings
from plaza.core.tracing import TRACING
from plaza.core.valkey import REQUEST_USAGE

# Far longer than any id or cursor.
MAX_PATH_BYTES = 4096
MAX_QUERY_BYTES = 8192

# nginx's status for a request whose client disconnected. Only the log and the metrics show it.
CLIENT_DISCONNECTED_STATUS = 499

# How old the gauge of requests in flight may be.
SAMPLE_SECONDS = 1.0

log = structlog.get_logger("plaza.http")


class App:
    """The application: `handle` for Plaza's own server, a call for other ASGI servers.

    `drain()` announces the end; `in_flight` is the number of requests not yet complete.
    """

    def __init__(
        self,
        routes: Iterable[Route],
        bind: Callable[[Route], BoundRoute],
        api_docs: ApiDocs,
        *,
        auth: Auth,
        settings: Settings,
        options: AppOptions,
    ) -> None:
        self.bind = bind
        self.api_docs = api_docs
        self.limiter = options.limiter if settings.rate_limits else None
        self.authorizer = Authorizer(auth, self.limiter, options.pages, options.viewer_auth, options.admin_mfa)
        self.idempotency = options.idempotency
        self.observer = options.observer
        self.error_formats = options.error_formats
        self.explain_error = options.explain_error
        self.security_log = options.security_log
        self.replication = options.replication
        self.draining = options.draining
        self.proxies = TrustedProxies(settings.trusted_proxies)
        self.cors = Cors(settings.cors_origins) if settings.cors_origins else None
        self.sender = ResponseSender(self.cors, self.explain_error, self.draining)
        self.data_dir = settings.data_dir
        self.root_path = settings.mount_path
        self.in_flight = 0
        self._sampling: asyncio.TimerHandle | None = None
        self.router: Router[Route] = Router()
        for route in routes:
            self.router.add(route.method, route.template, route)

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await _other_protocol(scope, receive, send)
            return
        await self.handle(AsgiExchange(scope, receive, send))

    async def handle(self, exchange: Exchange) -> None:
        """Respond to a request."""
        started = perf_counter()
        root, root_token = self.root_path or exchange.root_path.rstrip("/"), None
        if root:
            exchange.path = unmounted(exchange.path, exchange.root_path, self.root_path)
            root_token = ROOT_PATH.set(root)
        request = Request(exchange, self.proxies)
        if TRACING.tracer is not None:
            start_trace(TRACING.tracer, request)
        usage_token = REQUEST_USAGE.set(request.usage)
        self.in_flight += 1
        if self._sampling is None:
            self._sampling = asyncio.get_running_loop().call_later(SAMPLE_SECONDS, self._sample)
        status = CLIENT_DISCONNECTED_STATUS
        try:
            response = await self._response(request)
            status = response.status
            if root:
                response = mounted(response, root)
            await self.sender.send(request, response, started)
        except ClientDisconnected:
            status = CLIENT_DISCONNECTED_STATUS
        finally:
            if request.form is not None:
                request.form.close()
            self.in_flight -= 1
            REQUEST_USAGE.reset(usage_token)
            if root_token is not None:
                ROOT_PATH.reset(root_token)
            if self.observer is not None:
                self.observer.request_completed(request, status, perf_counter() - started)
            if request.usage.trace is not None:
                end_trace(request.usage.trace, request, status)

    def _sample(self) -> None:
        """Set the gauge of requests in flight, once a second while there are any. Doing so per request costs more."""
        metrics.HTTP_IN_FLIGHT.set(self.in_flight)
        loop = asyncio.get_running_loop()
        self._sampling = loop.call_later(SAMPLE_SECONDS, self._sample) if self.in_flight else None

    def drain(self) -> None:
        """Close each connection after its response, end event streams, and let `/readyz` return 503."""
        self.draining.set()

    async def _response(self, request: Request) -> EncodedResponse:
        """The response to a request, also if an error occurs."""
        bound = None
        try:
            _require_host(request)
            node = self._find(request)
            method = request.method
            if method == "OPTIONS":
                return self._options(request, node)
            route = node.methods.get("GET" if method == "HEAD" else method)
            if route is None:
                raise _not_allowed(node)
            bound = self.bind(route)
            response = await self._respond(request, bound)
            if request.usage.damaged is not None:
                await self.explain_error(request.usage.damaged)  # which logs and counts it
            return response
        except ClientDisconnected:
            raise
        except Exception as error:
            if type(error) is Forbidden and request.actor is not None and request.actor.lacks_mfa:
                error = AdminMfaRequired(NEEDS_MFA)  # with it, the admin might have been allowed
            on_error = bound.route.on_error if bound else self.error_formats.get(_first_segment(request))
            if on_error is not None and (bound is None or isinstance(error, Invalid)):  # before the handler knew
                await self.authorizer.identify_visitor(request)
            return _error_response(await self.explain_error(error), request, on_error)

    def _find(self, request: Request) -> RouteNode[Route]:
        path = request.path
        if len(path) > MAX_PATH_BYTES or len(request.query_string) > MAX_QUERY_BYTES:
            raise UrlTooLong
        is_of_server = path == "*" and request.method == "OPTIONS"  # about no path: answered like `/`
        found = self.router.find("/" if is_of_server else path)
        if found is None:
            raise NotFound("There is nothing at this address.")
        node, request.path_values = found
        request.template = node.template
        return node

    async def _respond(self, request: Request, bound: BoundRoute) -> EncodedResponse:
        """Check access and the rate limit, then run the handler."""
        if bound.is_form:
            # Read first: a refused form is shown again with what the user wrote. `_run_form` checks its access, after
            # the form itself. Only files are not taken from everyone.
            takes_files = not sends_files(request, bound) or await self.authorizer.accepts(request, bound)
            await self._read_body(request, bound, takes_files=takes_files)
        elif bound.identifies:
            await self.authorizer.authorize(request, bound)
        if self.limiter is None or bound.limit is None:
            return await self._run(request, bound)
        name = await self.authorizer.limited_name(request, bound)
        if not bound.safe or bound.route.limit_first:
            request.limits = await self.limiter.take(bound.limit, name, request.address)
            return await self._run(request, bound)
        # A read does not wait for the limiter: its command is sent together with the handler's own, in one write, and
        # its reply is awaited before the response. Only the first read too many does its work: the process remembers
        # the refusal.
        self.limiter.require_not_refused(bound.limit, name, request.address)
        limits = asyncio.ensure_future(self.limiter.take(bound.limit, name, request.address))
        try:
            return await self._run(request, bound)
        finally:
            request.limits = await limits

    async def _run(self, request: Request, bound: BoundRoute) -> EncodedResponse:
        """Bind the arguments and run the handler. A read stops if its client disconnects; a write always completes."""
        if bound.safe:
            arguments = bound.arguments(request)
            with CancelOnDisconnect(request.exchange):
                return bound.encode(await bound.handler(*arguments))
        if bound.is_form:
            return bound.encode(await self._run_form(request, bound))
        await self._read_body(request, bound)
        key = request.headers.get("idempotency-key") if bound.route.idempotent else None
        if key is not None:
            require_valid_key(key)
        if key is None or self.idempotency is None or bound.route.idempotent == "by_handler":
            return bound.encode(await self._run_handler(request, bound))
        return await self._run_once(self.idempotency, key, request, bound)

    async def _run_handler(self, request: Request, bound: BoundRoute) -> Any:
        """Bind the arguments and run the handler of a write. An admin's is recorded before it runs and when it ends.

        Then wait for replicas, if that is set.
        """
        entry = admin_log_entry(request, bound)
        if self.security_log is None or entry is None:
            result = await bound.handler(*bound.arguments(request))
        else:
            async with self.security_log.recording(entry):
                arguments = bound.arguments(request)
                entry.detail = bound.logged_values(arguments)
                result = await bound.handler(*arguments)
                entry.result = str(result.status or bound.status if isinstance(result, Response) else bound.status)
        if self.replication is not None:
            await self.replication.confirm()
        return result

    async def _run_form(self, request: Request, bound: BoundRoute) -> Any:
        pages = self.authorizer.pages
        assert pages is not None, "forms need `pages`"

        async def run() -> Any:
            await self.authorizer.authorize(request, bound)
            return await self._run_handler(request, bound)

        return await pages.run_form(request, run)

    async def _read_body(self, request: Request, bound: BoundRoute, *, takes_files: bool = True) -> None:
        self._refuse_cross_site(request, bound)
        await read_request_body(request, bound, self.data_dir if takes_files else None)

    async def _run_once(
        self, idempotency: Idempotency, key: str, request: Request, bound: BoundRoute
    ) -> EncodedResponse:
        """Run the handler, or return the stored response of the same request."""
        own: list[EncodedResponse] = []

        async def run(operation: str) -> BufferedResponse:
            request.operation, request.row_operation = operation, keyed.row_operation
            try:
                response = bound.encode(await self._run_handler(request, bound))
            except Exception as error:
                response = _error_response(await self.explain_error(error), request, bound.route.on_error)
            assert isinstance(response.body, bytes), "a stream cannot be stored"
            own.append(response)
            headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers)
            return BufferedResponse(response.status, headers, response.body)

        target = f"{request.path}?{request.query_string.decode('latin-1')}"
        caller = caller_id(request.actor, request.address)
        if bound.route.idempotency_scope is not None:
            caller = f"{caller} {bound.route.idempotency_scope(request)}"
        keyed = IdempotentRequest.from_request(caller, key, request.method, target, request.body)
        stored = await idempotency.run_once(keyed, run)
        if own:
            return own[0]
        return EncodedResponse(stored.status, with_headers(standard_headers(None), stored.headers), stored.body)

    def _refuse_cross_site(self, request: Request, bound: BoundRoute) -> None:
        """Refuse a write from a page of another site, which would use the reader's cookie. Browsers report the site.

        Routes that take the cookie are stricter: pages of other hosts of the same domain are refused too, and
        `PLAZA_CORS_ORIGINS` must name an origin; `*` is not enough.
        """
        headers = request.headers
        origin = headers.get("origin", "")
        if bound.access is SESSION:
            if not (self.cors is not None and origin in self.cors.origins):
                require_same_origin(headers)
        elif headers.get("sec-fetch-site") == "cross-site" and not (self.cors is not None and self.cors.allows(origin)):
            raise CrossOrigin("Pages of other sites cannot do this. Allow their origin in PLAZA_CORS_ORIGINS.")

    def _options(self, request: Request, node: RouteNode[Route]) -> EncodedResponse:
        allowed = _methods(node)
        headers = [(b"allow", allowed.encode())]
        if self.cors is not None:
            headers += self.cors.preflight(request.headers, allowed)
        return EncodedResponse(204, (*standard_headers(None), *headers), b"")


def make_app(
    routes: Iterable[Routes],
    services: Mapping[type, Any] | None = None,
    *,
    auth: Auth,
    settings: Settings,
    options: AppOptions | None = None,
) -> App:
    """The ASGI application of these routes, with `/openapi.json`, `/asyncapi.json`, `/docs` and `/metrics`.

    Handlers take `services` by their types.
    """
    options = options or AppOptions()
    groups = (*routes, meta_routes.routes_for(settings.metrics_access))
    require_unique_operation_ids(route for group in groups for route in group.routes)
    api_docs = ApiDocs(
        lambda: describe(groups, list(map(bind, available)), __version__),
        lambda: describe_events(options.event_types, __version__),
    )
    provided = {**(services or {}), ApiDocs: api_docs, MetricsCache: MetricsCache()}

    @cache
    def bind(route: Route) -> BoundRoute:
        return BoundRoute(route, provided, settings)

    available = [route for group in groups for route in group.routes]
    if options.skip_unavailable:
        available = [route for route in available if _is_available(route, bind)]
    elif not options.bind_late:
        for route in available:
            bind(route)
    return App(available, bind, api_docs, auth=auth, settings=settings, options=options)


def _is_available(route: Route, bind: Callable[[Route], BoundRoute]) -> bool:
    """Whether the services exist that a route needs."""
    try:
        bind(route)
    except MissingService:
        return False
    return True


def _first_segment(request: Request) -> str:
    """The first segment of the path, by which errors of paths without a route have their format."""
    return "/" + request.path.partition("/")[2].partition("/")[0].partition("?")[0]


def _require_host(request: Request) -> None:
    """Refuse a request without exactly one `Host` (RFC 9112, 3.2). Proxies might read another one than Plaza.

    `Request` joins headers that are sent twice by a comma, which is in no host name.
    """
    host = request.headers.get("host")
    if (host is None and request.exchange.http_version != "1.0") or (host is not None and "," in host):
        raise BadRequest("Send exactly one Host header.")


def _methods(node: RouteNode[Route]) -> str:
    methods = {*node.methods, "OPTIONS", *(["HEAD"] if "GET" in node.methods else [])}
    return ", ".join(sorted(methods))


def _not_allowed(node: RouteNode[Route]) -> MethodNotAllowed:
    allowed = _methods(node)
    return MethodNotAllowed(f"This path accepts {allowed}.", allowed=allowed.split(", "))


def _error_response(error: Exception, request: Request, on_error: ErrorResponse | None) -> EncodedResponse:
    """The response of an exception. An unexpected one is logged, and the client gets only the request id."""
    if not isinstance(error, PlazaError):
        log.error(
            "unexpected_error",
            request_id=request.request_id,
            method=request.method,
            route=request.template,
            exc_info=error,
        )
        error = InternalError("An internal error occurred. The server's log has details under this request id.")
    if isinstance(error, RateLimited):
        request.limits = error.limit
        metrics.HTTP_RATE_LIMITED.labels(error.limit.kind).inc()
    response: Response[Any] = on_error(error, request) if on_error else problem(error, request.request_id)
    headers = with_headers(standard_headers(response.media_type or JSON), response.headers)
    return EncodedResponse(response.status or error.status, headers, as_bytes(response.body))


async def _other_protocol(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Acknowledge start and stop. Refuse websockets, which the server turns into 403."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close"})
        return
    assert scope["type"] == "lifespan", scope["type"]
    for phase in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{phase}.complete"})
