"""Identifies callers and checks the access that routes declare, before their handlers run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from plaza.core.admin_mfa import AdminMfa
from plaza.core.auth import Actor, Auth
from plaza.core.errors import Forbidden, PlazaError, Unauthenticated, Unavailable
from plaza.core.http.access import VIEWER, require_access
from plaza.core.http.bound_route import BoundRoute
from plaza.core.http.request import Request
from plaza.core.rate_limits import Limiter
from plaza.core.valkey import ReplyError

# Reads a viewer token or a user token from headers. Raises `Unauthenticated` if the token is not valid.
ViewerAuth = Callable[[Mapping[str, str]], Actor | None]


class PageAccess(Protocol):
    """Identifies users of pages by their session cookie, and checks their forms."""

    async def signed_in(self, request: Request) -> Actor | None:
        """The user of the session cookie; None for a guest."""

    async def run_form(self, request: Request, run: Callable[[], Awaitable[Any]]) -> Any:
        """Check that one of Plaza's pages made the form for this session, then run its handler."""


class Authorizer:
    """Identifies the caller of a request by the credentials that its route accepts, and checks the route's access."""

    def __init__(
        self,
        auth: Auth,
        limiter: Limiter | None,
        pages: PageAccess | None,
        viewer_auth: ViewerAuth | None,
        admin_mfa: AdminMfa,
    ) -> None:
        self.auth = auth
        self._admin_mfa = admin_mfa
        self._limiter = limiter
        self.pages = pages
        self._viewer_auth = viewer_auth

    async def authorize(self, request: Request, bound: BoundRoute) -> None:
        """Set the request's actor, or raise `Unauthenticated` or `Forbidden`. A refusal counts as a request.

        No I/O, except for session cookies, for counting refusals and for second factors that are not cached.
        """
        try:
            request.actor = await self._signed_in(request) if bound.route.by_cookie else self._identify(request, bound)
            request.actor = await self._admin_mfa.restrict(request.actor)
            require_access(bound.access, request.actor, by_cookie=bound.route.by_cookie, scope=bound.scope)
        except (Unauthenticated, Forbidden):
            if self._limiter is not None and bound.limit is not None and request.limits is None:
                name = None if request.actor is None else request.actor.name
                with suppress(Unavailable):  # the request is refused anyway
                    request.limits = await self._limiter.take(bound.limit, name, request.address)
            raise

    async def accepts(self, request: Request, bound: BoundRoute) -> bool:
        """Identify the caller, and return whether the route accepts them. A refusal counts as a request."""
        with suppress(Unauthenticated, Forbidden):
            await self.authorize(request, bound)
            return True
        return False

    async def identify_visitor(self, request: Request) -> None:
        """Identify the user of a page's cookie for an error page, whose frame is a guest's if that fails."""
        with suppress(PlazaError, ReplyError):  # nothing handles an error of an error page
            await self._signed_in(request)

    async def limited_name(self, request: Request, bound: BoundRoute) -> str | None:
        """The user whose rate limit a request counts against. Open routes ignore wrong credentials."""
        if request.actor is None and (bound.is_form or not bound.route.by_cookie):
            with suppress(Unauthenticated):
                if bound.is_form:
                    request.actor = await self._signed_in(request)
                else:
                    request.actor = self._identify(request, bound)
        return None if request.actor is None else request.actor.name

    async def _signed_in(self, request: Request) -> Actor | None:
        return None if self.pages is None else await self.pages.signed_in(request)

    def _identify(self, request: Request, bound: BoundRoute) -> Actor | None:
        if bound.access is VIEWER and self._viewer_auth is not None:
            return self._viewer_auth(request.headers)
        return self.auth.actor(request.headers)
