"""Who may call a route. Each route declares one `Access`, and `App` checks it before the handler runs.

| access | accepted callers |
|---|---|
| `PUBLIC` | everyone |
| `AUTHENTICATED` | a user token or the API key |
| `USER` | a user token; on pages, a signed-in user |
| `ADMIN` | a user token of an admin or the API key; on pages, a signed-in admin |
| `API_KEY` | the API key |
| `EVENTS` | an admin, the API key, or a named API key with the scope `events` |
| `SESSION` | everyone; the session cookie identifies the caller, and a new session starts without one |
| `VIEWER` | a viewer token or a user token |

What depends on the object ("its author or an admin") is the service's decision.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from plaza.core.api_keys import Scope
from plaza.core.auth import Actor
from plaza.core.errors import Forbidden, Unauthenticated


class Access(Enum):
    """The callers that a route accepts. The value is how the documentation names them."""

    PUBLIC = "anyone"
    AUTHENTICATED = "user or API key"
    USER = "user"
    ADMIN = "admin or API key"
    API_KEY = "API key"
    EVENTS = "admin or API key with the scope events"
    SESSION = "session cookie"
    VIEWER = "viewer or user"

    @property
    def is_open(self) -> bool:
        """Whether every caller is accepted."""
        return self in (Access.PUBLIC, Access.SESSION)


PUBLIC: Final = Access.PUBLIC
AUTHENTICATED: Final = Access.AUTHENTICATED
USER: Final = Access.USER
ADMIN: Final = Access.ADMIN
API_KEY: Final = Access.API_KEY
EVENTS: Final = Access.EVENTS
SESSION: Final = Access.SESSION
VIEWER: Final = Access.VIEWER

NOT_AUTHENTICATED: Final = "This needs authentication. Send a token or an API key."
NOT_SIGNED_IN: Final = "Sign in to do this."
NOT_A_USER: Final = "This needs a user token; API keys are not accepted here."
NOT_A_KEY: Final = "This needs the API key; user tokens are not accepted here."
NOT_AN_ADMIN: Final = "This needs the role admin."


class AdminMfaRequired(Forbidden):
    title, code = "Admins need a second factor", "admin_mfa_required"


NEEDS_MFA: Final = "Set up one-time codes or a passkey to use your admin rights."


def require_access(access: Access, actor: Actor | None, *, by_cookie: bool = False, scope: Scope | None = None) -> None:
    """Raise `Unauthenticated` or `Forbidden` if a route with this access does not accept the actor.

    `scope` is what a named API key needs for the route; None: only the scope `admin` suffices.
    """
    if access is PUBLIC or access is SESSION:
        return
    if actor is None:
        raise Unauthenticated(NOT_SIGNED_IN if by_cookie else NOT_AUTHENTICATED)
    if actor.via_key and (access is USER or access is VIEWER):
        raise Forbidden(NOT_A_USER)
    if access in (ADMIN, EVENTS) and actor.lacks_mfa:
        raise AdminMfaRequired(NEEDS_MFA)
    if (access is ADMIN or (access is EVENTS and not actor.via_key)) and not actor.is_admin:
        raise Forbidden(NOT_AN_ADMIN)
    if access is API_KEY and not actor.via_key:
        raise Forbidden(NOT_A_KEY)
    if actor.scopes is not None and scope not in actor.scopes:
        raise Forbidden(f"This needs an API key with the scope {scope or 'admin'}.")
