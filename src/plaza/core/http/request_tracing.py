"""The span of a request. Its name is the route's template: paths and query strings can contain tokens."""

from __future__ import annotations

from plaza.core.http.request import Request
from plaza.core.tracing import Trace, Tracer

SERVER_ERROR_STATUS = 500


def start_trace(tracer: Tracer, request: Request) -> None:
    """Start the trace of a request, if it is sampled. A trusted proxy decides that for its requests."""
    traceparent = request.headers.get("traceparent", "")
    request.usage.trace = tracer.start(traceparent, follows=traceparent != "" and request.proxied)


def end_trace(trace: Trace, request: Request, status: int) -> None:
    """End the trace of a request."""
    attributes: dict[str, str | int] = {
        "http.request.method": request.method,
        "http.response.status_code": status,
        "plaza.request_id": request.request_id,
    }
    if request.template:
        attributes["http.route"] = request.template
    error = str(status) if status >= SERVER_ERROR_STATUS else ""
    trace.end(f"{request.method} {request.template}".rstrip(), "server", attributes, error)
