"""Sessions over HTTP. Their paths begin with `/shop`, where they were published first."""

from __future__ import annotations

from typing import TypeVar

from plaza.core.domain import InvalidPasskey, MfaRequired, WrongCode
from plaza.core.errors import TooFast
from plaza.core.http.access import SESSION
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.http.routes import Routes
from plaza.core.paging import Page
from plaza.sessions.cookies import (
    clear_cookie,
    client_from,
    session_cookies,
    set_cookie,
    set_device_cookie,
    sign_in_client,
    token_from,
)
from plaza.sessions.model import Login, Session, SessionId, SessionReplaced, SessionsPage, Visit, WrongLogin
from plaza.sessions.service import Sessions
from plaza.sessions.sign_in import SignIn

T = TypeVar("T")

route = Routes("sessions", prefix="/shop", about="Browser sessions: a cookie, for guests and signed-in users.")


def session_response(
    request: Request, sessions: Sessions, visit: Visit, body: T, *, status: int | None = None
) -> Response[T]:
    """Return the response to a session's request, with the cookies if the session is new."""
    return Response(body, status=status, headers=session_cookies(request, visit, sessions.store))


@route.post("/session", access=SESSION, other_responses={201: Session})
async def start_session(request: Request, sessions: Sessions) -> Response[Session]:
    """Get or start the session. Without a valid cookie the response is 201 and sets one."""
    visit = await sessions.visit(client_from(request))
    status = 201 if visit.new else None
    return session_response(request, sessions, visit, sessions.describe(visit), status=status)


@route.post(
    "/login",
    access=SESSION,
    raises=[WrongLogin, MfaRequired, WrongCode, InvalidPasskey, SessionReplaced, TooFast],
    example={"username": "ana", "password": "correct horse battery"},
)
async def login_session(body: Login, request: Request, sessions: Sessions, sign_in: SignIn) -> Response[Session]:
    """Log in. The token changes, and the guest's cart is merged into the account's."""
    visit = await sign_in.login(token_from(request), body, sign_in_client(request))
    cookie = set_cookie(request, visit.token, sessions.limits.absolute_seconds)
    device = set_device_cookie(request, sign_in.new_device(body.username))
    return Response(sessions.describe(visit), headers=[cookie, device])


@route.post("/logout", access=SESSION, status=204)
async def logout_session(request: Request, sessions: Sessions) -> Response[None]:
    """Log out and end the session. The account's cart stays for the next login."""
    await sessions.logout(token_from(request), request.address)
    return Response(None, headers=[clear_cookie(request)])


@route.get("/sessions", access=SESSION)
async def list_sessions(request: Request, page: Page, sessions: Sessions) -> Response[SessionsPage]:
    """List your sessions, newest first. A guest sees the current one only."""
    visit = await sessions.visit(client_from(request))
    return session_response(request, sessions, visit, await sessions.page(visit, page))


@route.delete("/sessions/{id}", access=SESSION, status=204)
async def end_session(id: SessionId, request: Request, sessions: Sessions) -> Response[None]:
    """End one of your sessions."""
    visit = await sessions.visit(client_from(request))
    await sessions.end_own(visit, id)
    return session_response(request, sessions, visit, None)
