"""What an application can have besides its routes, services, authentication and settings."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct, field

from plaza.core.admin_mfa import AdminMfa
from plaza.core.asyncapi import EventTypes
from plaza.core.http.authorizer import PageAccess, ViewerAuth
from plaza.core.http.request import Request
from plaza.core.http.routes import ErrorResponse
from plaza.core.idempotency import Idempotency
from plaza.core.rate_limits import Limiter
from plaza.core.replication_wait import ReplicationWait
from plaza.core.security_log import SecurityLog
from plaza.core.wrong_type import ExplainError, unexplained


class RequestObserver(Protocol):
    """Is notified of every request."""

    def request_completed(self, request: Request, status: int, seconds: float) -> None:
        """A request is complete."""


class AppOptions(Struct, frozen=True, kw_only=True):
    """Options of `make_app`."""

    limiter: Limiter | None = None
    idempotency: Idempotency | None = None
    observer: RequestObserver | None = None
    error_formats: Mapping[str, ErrorResponse] = {}  # of paths without a route, by the first path segment
    # Identify callers of routes that take the session cookie, or a viewer token.
    pages: PageAccess | None = None
    viewer_auth: ViewerAuth | None = None
    admin_mfa: AdminMfa = field(default_factory=AdminMfa)  # withholds the rights of admins without a second factor
    explain_error: ExplainError = unexplained  # finds the cause of an error that needs a lookup
    draining: asyncio.Event = field(default_factory=asyncio.Event)  # set by `App.drain`, for others that need to know
    security_log: SecurityLog | None = None  # records the writes of admins
    replication: ReplicationWait | None = None  # what writes wait for before they are acknowledged
    event_types: EventTypes = {}  # for `/asyncapi.json`
    skip_unavailable: bool = False  # leave out routes whose services do not exist, because their domains are off
    # Bind a route when it is first requested, which saves a tenth of a start. Otherwise a mistake in a route stops it.
    bind_late: bool = False
