"""The HTTP routes of signing in with an OpenID provider. Browsers follow them; they respond with redirects.

Generated clients cannot use them, so the OpenAPI document leaves them out.
"""

from __future__ import annotations

import re
from typing import Final

from plaza.accounts.keys import STATE_SECONDS
from plaza.accounts.model import SignInRefused
from plaza.accounts.openid import OpenIdSignIn
from plaza.core.http.access import PUBLIC
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.http.routes import Routes
from plaza.core.root_path import with_root
from plaza.core.security_log import AccountLog
from plaza.sessions.cookies import set_cookie, token_from
from plaza.sessions.service import Sessions
from plaza.sessions.sign_in import SignIn

route = Routes("accounts")

HOME: Final = "/app"
# Only pages of this site: an open redirect would lend its name to others.
_PAGE: Final = re.compile(r"/app(?:[/?][!-\[\]-~]*)?")
_COOKIE: Final = "plaza_openid"
_COOKIE_PATTERN: Final = re.compile(rf"(?:^|;\s*){_COOKIE}=([\w-]{{10,100}})(?:;|$)")


@route.get("/auth/oidc/start", access=PUBLIC, status=303, in_openapi=False)
async def start_openid(request: Request, openid: OpenIdSignIn, next: str = HOME) -> Response[None]:
    """Start a sign-in with the OpenID provider. Redirects the browser to it."""
    started = await openid.start(next if _PAGE.fullmatch(next) else HOME)
    return Response(
        status=303,
        headers=[_state_cookie(request, started.state, STATE_SECONDS), ("location", started.url)],
    )


@route.get("/auth/oidc/callback", access=PUBLIC, status=303, ignores_unknown_query=True, in_openapi=False)
async def finish_openid(
    request: Request,
    openid: OpenIdSignIn,
    sign_in: SignIn,
    sessions: Sessions,
    log: AccountLog,
    state: str = "",
    code: str = "",
) -> Response[None]:
    """Finish a sign-in with the OpenID provider. Starts a session and redirects to the page."""
    cookie = _COOKIE_PATTERN.search(request.headers.get("cookie", ""))
    if cookie is None or not code:
        raise SignInRefused
    username, page = await openid.finish(state, cookie[1], code)
    visit = await sign_in.admit(token_from(request), username, request.client)
    await log.record(username, "sign_in", request.address, detail="openid")
    session = set_cookie(request, visit.token, sessions.limits.absolute_seconds)
    return Response(status=303, headers=[session, _state_cookie(request, "", 0), ("location", page)])


def _state_cookie(request: Request, state: str, seconds: int) -> tuple[str, str]:
    secure, path = "; Secure" if request.secure else "", with_root("/auth/oidc")
    return (
        "set-cookie",
        f"{_COOKIE}={state}; Path={path}; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}",
    )
