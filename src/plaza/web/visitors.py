"""Identifies the visitor of a page: the session of the cookie, and the user who is signed in to it.

Pages and shop share sessions, so a guest's cart and the cart after sign-in belong to one visit. A user's role is always
the current one: a suspended user, or one who lost a role, has lost it on the next request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import TypeVar

from msgspec import Struct

from plaza.core.admin_mfa import AdminMfa
from plaza.core.auth import ADMIN, Actor
from plaza.core.errors import Unauthenticated
from plaza.core.http.request import Request
from plaza.notifications.unread_counts import UnreadCounts
from plaza.sessions.cookies import session_cookies, set_cookie, token_from
from plaza.sessions.model import Visit, new_token
from plaza.sessions.service import Sessions
from plaza.sessions.session_cache import SessionCache
from plaza.shop.cart_counts import CartCounts
from plaza.social.avatars import Avatars
from plaza.social.credentials import Credentials
from plaza.web.security import FormTokens

T = TypeVar("T")


class Visitor(Struct, frozen=True):
    """A session, if there is one, and its user, if one is signed in."""

    session: str | None = None
    actor: Actor | None = None
    cookie: tuple[tuple[str, str], ...] = ()  # the header to send with the response if the session is new
    avatar: str = ""  # the address of the user's avatar
    unread: int = 0  # notifications
    cart: int = 0  # items in the cart
    csrf: str = ""  # the token that every form of a signed-in user carries

    @property
    def name(self) -> str:
        return "" if self.actor is None else self.actor.name

    @property
    def is_admin(self) -> bool:
        return self.actor is not None and self.actor.is_admin

    @property
    def has_admin_role(self) -> bool:
        """Whether the user is an admin, also one who must set up a second factor before using the rights."""
        return self.actor is not None and self.actor.role == ADMIN

    def require_user(self) -> Actor:
        """Return the signed-in user. `access=USER` and `access=ADMIN` guarantee that there is one."""
        if self.actor is None:
            raise Unauthenticated("Sign in to do this.")
        return self.actor


ANONYMOUS = Visitor()


class Visitors:
    """Identifies visitors by the session cookie."""

    def __init__(
        self,
        sessions: Sessions,
        session_cache: SessionCache,
        credentials: Credentials,
        admin_mfa: AdminMfa,
        avatars: Avatars,
        unread_counts: UnreadCounts | None,
        cart_counts: CartCounts,
        form_tokens: FormTokens,
    ) -> None:
        self._form_tokens = form_tokens
        self.sessions = sessions
        self.avatars = avatars
        self._unread_counts = unread_counts
        self._cart_counts = cart_counts
        self._admin_mfa = admin_mfa
        self._session_cache = session_cache
        self._credentials = credentials

    async def from_request(self, request: Request) -> Visitor:
        """Return the visitor of a request, looked up once; `ANONYMOUS` without a cookie.

        No round trip if the session is cached.
        """
        if request.visitor is None:
            request.visitor = await self._find(request)
        visitor: Visitor = request.visitor
        return visitor

    async def _find(self, request: Request) -> Visitor:
        token = token_from(request)
        if token is None:
            return ANONYMOUS
        visit = await self._session_cache.find(token)
        # An unknown cookie of a guest stays valid for forms: the forms of open pages are signed with it.
        return Visitor(token) if visit is None else await self.from_visit(request, visit)

    async def for_sign_in(self, request: Request) -> Visitor:
        """Return the visitor of a sign-in page. Its form needs a cookie, but no session is stored yet."""
        if token_from(request) is not None:
            return await self.from_request(request)
        token = new_token()
        return Visitor(token, cookie=(set_cookie(request, token, self.sessions.limits.absolute_seconds),))

    async def from_visit(self, request: Request, visit: Visit) -> Visitor:
        """Return the visitor of a session that is already read."""
        cookies = session_cookies(request, visit, self.sessions.store)
        actor = None if visit.user is None else await self._credentials.actor(visit.user)
        if actor is not None:
            actor = replace(actor, since_ms=visit.since_ms, session=visit.id, signed_in_ms=visit.since_ms)
            actor = await self._admin_mfa.restrict(actor)
        if actor is None:
            return Visitor(visit.token, cookie=tuple(cookies), cart=await self._cart_counts.get(visit.token))
        avatars, unread, cart = await asyncio.gather(
            self.avatars.addresses([actor.name]), self._count_unread(actor.name), self._cart_counts.get(visit.token)
        )
        token = self._form_tokens.token(visit.token)
        return Visitor(visit.token, actor, tuple(cookies), avatars[actor.name], unread, cart, token)

    async def while_admin(self, visitor: Visitor, updates: AsyncGenerator[T, None]) -> AsyncIterator[T]:
        """Pass on the updates of an open page until its session ends or its user is no admin any more.

        No round trip if both are cached.
        """
        async with aclosing(updates):
            async for update in updates:
                visit = await self._session_cache.find(visitor.session or "")
                found = await self._credentials.actor(visitor.name)
                if visit is None or visit.user != visitor.name or found is None or not found.is_admin:
                    return
                yield update

    async def _count_unread(self, username: str) -> int:
        return 0 if self._unread_counts is None else await self._unread_counts.get(username)
