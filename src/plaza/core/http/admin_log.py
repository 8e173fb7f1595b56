"""What the security log says of a request."""

from __future__ import annotations

from urllib.parse import unquote

from plaza.core.http.bound_route import BoundRoute
from plaza.core.http.request import Request
from plaza.core.security_log import LogEntry


def admin_log_entry(request: Request, bound: BoundRoute) -> LogEntry | None:
    """Return the log entry of a request; None if it is no action of an admin or an API key."""
    actor = request.actor
    if not bound.is_admin_action or actor is None or not (actor.is_admin or actor.via_key):
        return None
    return LogEntry(
        actor.name,
        bound.route.action,
        unquote(" ".join(request.path_values)),
        request.address or "",
        request_id=request.request_id,
        kind="admin",
    )
