"""Refresh tokens, and what is stored of the session that they belong to.

A session is a *family* of refresh tokens. Each token can be exchanged once, for the next one. A token that is used
twice was copied, so its family ends. Only hashes are stored.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Final, cast

from msgspec import Struct

from plaza.core.account_sessions import AccountSession
from plaza.core.auth import Auth
from plaza.core.clients import ClientInfo
from plaza.core.number_parsing import parse_int
from plaza.core.roles import Role
from plaza.core.settings import AccountAddress
from plaza.core.tokens import ACCESS_TOKEN_SECONDS, is_username
from plaza.social.model import InvalidRefreshToken, SignedIn, User

REFRESH_MS: Final = 30 * 86_400_000
# Sessions of one user; beyond this the one with the earliest expiry ends.
MAX_SESSIONS: Final = 20

_FIELD: Final = "family:"


class RefreshToken(Struct, frozen=True):
    """`<username>.<session>.<secret>`: the first two parts locate it, the secret proves it."""

    username: str
    session: str
    secret: str

    @classmethod
    def new(cls, username: str) -> RefreshToken:
        return cls(username, secrets.token_hex(16), secrets.token_urlsafe(32))

    @classmethod
    def parse(cls, token: str) -> RefreshToken:
        username, session, secret = [*token.rsplit(".", 2), "", ""][:3]
        if not is_username(username) or len(session) != 32 or not secret:
            raise InvalidRefreshToken
        return cls(username, session, secret)

    def next(self) -> RefreshToken:
        return RefreshToken(self.username, self.session, secrets.token_urlsafe(32))

    def __str__(self) -> str:
        return f"{self.username}.{self.session}.{self.secret}"

    @property
    def family(self) -> str:
        """The field of `auth:<username>` that holds the session."""
        return family_field(self.session)

    @property
    def hash(self) -> str:
        return hashlib.sha256(self.secret.encode()).hexdigest()

    def stored_hash(self, now_ms: int) -> str:
        """The first part of the stored session: the hash of the current token, and when it expires."""
        return f"{self.hash}|{now_ms + REFRESH_MS}"

    def stored_session(self, now_ms: int, client: ClientInfo, addresses: AccountAddress) -> str:
        """What is stored of a new session."""
        return f"{self.stored_hash(now_ms)}|{now_ms}|{stored_use(now_ms, client, addresses)}"


def family_field(session: str) -> str:
    return _FIELD + session


def stored_use(now_ms: int, client: ClientInfo, addresses: AccountAddress) -> str:
    """The last part of a stored session: when, from where and by which program it was used last."""
    return f"{now_ms}|{client.stored_address(addresses)}|{client.device_name}"


def read_sessions(credentials: dict[str, str]) -> list[AccountSession]:
    """Return the sessions in a user's credentials. What earlier releases did not store is empty or 0."""
    sessions = []
    for field, value in credentials.items():
        if field.startswith(_FIELD):
            _, expires, created, used, address, device = (*value.split("|"), "", "", "", "", "")[:6]
            times = (parse_int(created), parse_int(used or created), parse_int(expires))
            sessions.append(AccountSession(field.removeprefix(_FIELD), "api", device, address, *times))
    return sessions


def issue_tokens(auth: Auth, user: User, token: RefreshToken, issued_ms: int, signed_in_ms: int) -> SignedIn:
    """Return the tokens of a session, with the user's profile. No I/O."""
    claims = {"sid": token.session, "auth_time": signed_in_ms // 1000}
    access = auth.issue(user.username, cast(Role, user.role), issued_ms=issued_ms, **claims)
    return SignedIn(user, access, str(token), ACCESS_TOKEN_SECONDS)
