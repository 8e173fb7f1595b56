"""The types of sessions, and their tokens.

A token is an upper-case UUID of version 4, as the document has it: 122 random bits of the operating system. That is six
fewer than OWASP's recommended 128 and far more than its minimum of 64.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import uuid
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from plaza.core.errors import Conflict, Unauthenticated
from plaza.core.paging import Pagination
from plaza.core.passkey_credentials import PasskeyCredential
from plaza.core.validation_messages import described_pattern
from plaza.sessions.keys import TOKEN

# A user who returns within a week finds everything in place; after a month they must sign in again.
IDLE_SECONDS: Final = 7 * 86_400
ABSOLUTE_SECONDS: Final = 30 * 86_400
# Beyond it the oldest sessions end.
MAX_SESSIONS: Final = 10_000_000

_SESSION_ID: Final = described_pattern("Invalid session id. It has 32 of 0-9 and a-f", r"^[0-9a-f]{32}$(?!\n)")
SessionId = Annotated[
    str,
    Meta(
        pattern=_SESSION_ID,
        description="Id of a session; not its token.",
        examples=["5f3b9c1e7a2d4e6f8091a2b3c4d5e6f7"],
    ),
]

_TOKEN: Final = re.compile(TOKEN)


class SessionReplaced(Conflict):
    title, code = "This session was replaced by a login", "session_moved"


class WrongLogin(Unauthenticated):
    title, code = "Username or password is wrong", "wrong_login"


class Login(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    username: Annotated[str, Meta(min_length=1, max_length=100)]
    password: Annotated[str, Meta(min_length=1, max_length=1_000)]
    # For accounts with a second factor: one of these.
    code: Annotated[str, Meta(min_length=6, max_length=40)] | None = None
    passkey: PasskeyCredential | None = None


class Session(msgspec.Struct, frozen=True):
    """A session. Its `id` is not secret: the token cannot be derived from it. Times are Unix seconds.

    `device` and `address` are those of the sign-in; the address is truncated to its network by default.
    """

    id: str
    user: str | None
    created_at: float
    last_seen: float
    expires_at: float
    current: bool
    device: str = ""
    address: str = ""


class SessionsPage(msgspec.Struct, frozen=True):
    sessions: list[Session]
    pagination: Pagination


class SessionLimits(Struct, frozen=True):
    """How long sessions live, in seconds, and how many there may be."""

    idle_seconds: float = IDLE_SECONDS
    absolute_seconds: float = ABSOLUTE_SECONDS
    max_sessions: int = MAX_SESSIONS


class SessionClient(Struct, frozen=True):
    """What a request says about its session: the token of its cookie, and the proof that Plaza offered it."""

    token: str | None
    proof: str = ""
    may_start: bool = True  # a read only offers a session
    address: str | None = None


class Visit(Struct, frozen=True):
    """The session of a request. Times are Unix seconds."""

    token: str
    user: str | None
    since: float
    seen: float
    new: bool = False  # the response must set its cookie
    replaced: bool = False  # a login has just replaced the request's token
    offered: bool = False  # nothing is stored yet; only with `new`

    @property
    def id(self) -> str:
        return public_id(self.token)

    @property
    def since_ms(self) -> int:
        return round(self.since * 1000)

    @property
    def was_guest(self) -> bool:
        """Whether a login replaced a guest's token: the request sees the guest's data only."""
        return self.replaced and self.user is None

    @property
    def buyer(self) -> str:
        """The owner of this session's orders."""
        return f"guest:{self.id}" if self.user is None else f"user:{self.user}"


def new_token() -> str:
    return str(uuid.UUID(bytes=secrets.token_bytes(16), version=4)).upper()


def is_token(text: str | None) -> bool:
    return text is not None and _TOKEN.fullmatch(text) is not None


def public_id(token: str) -> str:
    """Return the id of a session, from which the token cannot be derived."""
    return hashlib.sha256(f"plaza shop session {token}".encode()).hexdigest()[:32]


def seconds_text(ms: int) -> str:
    """Return Unix seconds as text: exact to the millisecond."""
    return f"{ms // 1000}.{ms % 1000:03d}"
