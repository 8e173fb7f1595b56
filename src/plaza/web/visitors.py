"""Who looks at a page: the session of the cookie, and the person behind it.

The session is the shop's, so that a guest's cart, a person's cart and the signed-in pages are one visit. A person's
role is what it is now: who was suspended or lost a role a moment ago has lost it here too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from plaza.core.auth import Actor
from plaza.core.errors import Unauthenticated
from plaza.core.http.request import Request
from plaza.sessions.cookies import set_cookie, token_of
from plaza.sessions.service import Sessions, Visit, new_token
from plaza.sessions.session_cache import Present
from plaza.social.credentials import Credentials


@dataclass(frozen=True, slots=True)
class Visitor:
    """A session, if there is one, and a person, if one is signed in."""

    session: str | None = None
    actor: Actor | None = None
    cookie: tuple[tuple[str, str], ...] = ()  # to be sent with the answer, if the session is new

    @property
    def name(self) -> str:
        return "" if self.actor is None else self.actor.name

    @property
    def is_admin(self) -> bool:
        return self.actor is not None and self.actor.is_admin

    def person(self) -> Actor:
        """The signed-in user, which `access=USER` and `access=ADMIN` guarantee."""
        if self.actor is None:
            raise Unauthenticated("Sign in to do this.")
        return self.actor


NOBODY = Visitor()


class Visitors:
    """Recognises visitors."""

    def __init__(self, sessions: Sessions, present: Present, credentials: Credentials) -> None:
        self.sessions = sessions
        self._present = present
        self._credentials = credentials

    async def of(self, request: Request) -> Visitor:
        """The visitor of a request, looked up once. Without a cookie nobody, and no session is begun.

        No round trip if the session is cached.
        """
        if request.visitor is None:
            request.visitor = await self._find(request)
        found: Visitor = request.visitor
        return found

    async def _find(self, request: Request) -> Visitor:
        token = token_of(request)
        if token is None:
            return NOBODY
        visit = await self._present.visit(token)
        # A guest whose cookie stands for nothing keeps it: the forms of pages that are open are made from it.
        return Visitor(token) if visit is None else await self.behind(request, visit)

    async def at_the_door(self, request: Request) -> Visitor:
        """Who asks to come in. The form needs a cookie, but nothing is written down for it: anybody may knock."""
        if token_of(request) is not None:
            return await self.of(request)
        token = new_token()
        return Visitor(token, cookie=(set_cookie(request, token, self.sessions.limits.absolute),))

    async def behind(self, request: Request, visit: Visit) -> Visitor:
        """The visitor of a session that is known already."""
        cookie = (set_cookie(request, visit.token, self.sessions.limits.absolute),) if visit.new else ()
        actor = None if visit.user is None else await self._credentials.actor(visit.user)
        if actor is not None:
            actor = replace(actor, since_ms=visit.since_ms)
        return Visitor(visit.token, actor, cookie)
