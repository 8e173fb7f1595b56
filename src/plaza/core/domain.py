"""Declares a domain: `app.py` takes everything about it from one `Domain` object.

    DOMAIN = Domain(LIBRARY, [routes.route], build)

`build(core)` makes the domain's services. Domains do not import each other: what one offers to another is in
`Provided`, behind a Protocol. `build_domains` builds them in the order of the list, so each finds in `core.provided`
what the domains before it offer. Services that need something of every domain are made by `Parts.build_last`.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from plaza.core.account_sessions import SessionList
from plaza.core.auth import Actor, Auth
from plaza.core.clients import UNKNOWN_CLIENT, ClientInfo
from plaza.core.clock import Clock
from plaza.core.clock_steps import OnSetBack
from plaza.core.encryption import EncryptedFields
from plaza.core.errors import Unauthenticated
from plaza.core.events import Consumer, EventData
from plaza.core.functions import Functions, Library
from plaza.core.http.routes import Routes
from plaza.core.invariants import Inspector, Invariants
from plaza.core.keyspace import Catalogue, Key
from plaza.core.notification_source import NotificationSource, Recipients
from plaza.core.passkey_credentials import PasskeyCredential
from plaza.core.pictures import AvatarAddresses, PictureHost, Pictures
from plaza.core.rate_limits import Limiter
from plaza.core.report_source import ReportSource
from plaza.core.search_source import SearchSource
from plaza.core.security_log import AccountLog
from plaza.core.settings import Settings
from plaza.core.sql import Sql
from plaza.core.timers import Timer
from plaza.core.topics import HiddenAuthors, TopicSource
from plaza.core.user_states import UserStates
from plaza.core.valkey import Valkey
from plaza.core.zip_stream import ArchivedFile


class PersonalData(Protocol):
    """What a domain stores about a user, for account export, deletion and renaming."""

    async def export(self, username: str) -> dict[str, Any]:
        """Return everything stored about a user. A long list may be an async iterator, read while it is sent."""

    async def delete(self, username: str) -> None:
        """Delete everything stored about a user, whose tokens are void. It is called again if it was interrupted."""

    async def rename(self, old: str, new: str) -> None:
        """Move everything stored about a user to a new username. It is called again if it was interrupted."""


class PersonalFiles(Protocol):
    def files(self, username: str) -> AsyncIterator[ArchivedFile]:
        """Yield the files that a user has stored, for the account export."""


class MfaRequired(Unauthenticated):
    title, code = "This account needs a code or a passkey besides the password", "mfa_required"


class InvalidPasskey(Unauthenticated):
    title, code = "The passkey was not accepted", "invalid_passkey"


class WrongCode(Unauthenticated):
    title, code = "The code is wrong, was used already or has expired", "wrong_code"


class SecondFactorProof(Struct, frozen=True):
    """What a user sends besides the password: a one-time or recovery code, or a used passkey."""

    code: str | None = None
    passkey: PasskeyCredential | None = None


NO_PROOF = SecondFactorProof()


class SignInCheck(Protocol):
    async def check(
        self,
        username: str,
        password: str,
        client: ClientInfo = UNKNOWN_CLIENT,
        proof: SecondFactorProof = NO_PROOF,
    ) -> Actor | None:
        """Return the user who may sign in; None if the password is wrong.

        `client` limits guessing. Raises `MfaRequired`, or `Unauthenticated` for a wrong proof, if the password is right
        and the account has a second factor.
        """

    def new_device(self, username: str) -> str:
        """Return the cookie for a device in which this user has just signed in."""


class CredentialStore(SignInCheck, Protocol):
    async def has_password(self, username: str, password: str, address: str | None) -> bool:
        """Whether this is a user's password. Wrong ones count as failed sign-ins."""

    async def has_any_password(self, username: str) -> bool:
        """Whether a user has a password at all."""

    async def actor(self, username: str) -> Actor | None:
        """Return a user with the current role; None if suspended or unknown."""

    async def create(self, username: str, profile: Mapping[str, str]) -> bool:
        """Create an account without a password; False if the username is taken."""

    async def get_email(self, username: str) -> str | None:
        """Return the address in a user's profile; None without one."""

    async def set_email(self, username: str, address: str) -> None:
        """Set the address in a user's profile."""

    async def require_strong(self, username: str, password: str) -> None:
        """Raise `WeakPassword` if a user's new password is easy to guess."""

    async def set_password(self, username: str, password: str) -> None:
        """Set a user's password and end every session that refreshes tokens."""


class SecondFactor(Protocol):
    async def methods(self, username: str) -> Sequence[str]:
        """Return how a user can prove more than the password: `totp`, `passkey`, `recovery_code`; empty without one."""

    async def verify(self, username: str, code: str) -> bool:
        """Whether a code is right. Each code works once."""

    async def verify_passkey(self, credential: PasskeyCredential, username: str | None = None) -> str:
        """Return the user of a passkey, or raise `InvalidPasskey`. With `username`, only that user's passkeys count."""


class SignOut(SessionList, Protocol):
    async def sign_out(self, username: str) -> None:
        """End every browser session of a user."""


class BlockLists(Protocol):
    def block_list_keys(self, viewer: Actor) -> Sequence[str]:
        """Return the sorted sets of users hidden from a viewer: those they block, and those who block a non-admin."""


class Provided(Struct, frozen=True):
    """What domains offer to each other. None where the domain that offers it does not run."""

    passwords: CredentialStore | None = None
    second_factor: SecondFactor | None = None
    account_log: AccountLog | None = None
    sessions: SignOut | None = None
    api_sessions: SessionList | None = None
    blocks: BlockLists | None = None
    recipients: Recipients | None = None
    user_states: UserStates | None = None
    hidden_authors: HiddenAuthors | None = None
    pictures: Pictures | None = None
    avatars: AvatarAddresses | None = None
    picture_hosts: Mapping[str, PictureHost] = field(default_factory=dict)  # by kind of thing
    personal_data: Mapping[str, PersonalData] = field(default_factory=dict)  # by domain
    personal_files: PersonalFiles | None = None
    search_sources: Sequence[SearchSource] = ()
    report_sources: Sequence[ReportSource] = ()
    notification_sources: Sequence[NotificationSource] = ()

    def merged(self, other: Provided) -> Provided:
        """Return these services and those of another domain."""
        given = {name: value for name in other.__struct_fields__ if (value := getattr(other, name))}
        return replace(self, **{**given, "picture_hosts": {**self.picture_hosts, **other.picture_hosts}})


class WorkerLoop(Protocol):
    """Work without end. When `run` returns or raises, it is started again."""

    stopping: bool

    @property
    def busy(self) -> bool:
        """Whether a stop should wait a little, because something is in progress."""

    async def run(self) -> None: ...

    def stop(self) -> None:
        """End `run` at the next opportunity."""


# Called repeatedly; each call returns the seconds until the next one.
Turn = Callable[[], Awaitable[float]]

# Emits the events of keys that were changed from outside the domain, given their owners.
EmitChanges = Callable[[Sequence[str]], Awaitable[None]]


class Core(Struct, frozen=True):
    """The services that every domain uses, connected and ready."""

    settings: Settings
    valkey: Valkey
    functions: Functions
    sql: Sql
    auth: Auth
    limiter: Limiter
    clock: Clock
    provided: Provided = Provided()
    event_types: Mapping[str, Sequence[type[EventData]]] = field(default_factory=dict)  # by the domain that emits them


class Parts(Struct, frozen=True):
    """A domain's objects. Handlers get a service by naming its type; a worker runs the timers and consumers."""

    services: Sequence[object]
    provided: Provided = Provided()
    # Makes the services that need something of every domain, when all domains are built.
    build_last: Callable[[Provided], Parts] | None = None
    timers: Sequence[Timer] = ()
    consumers: Sequence[Consumer] = ()
    # What every worker runs. They share the work between workers themselves.
    worker_loops: Mapping[str, Turn | WorkerLoop] = field(default_factory=dict)
    personal_data: PersonalData | None = None
    # Every key with a username in its name that the personal data handle. A start that finds another one is refused.
    personal_keys: Collection[Key] = ()
    search_sources: Sequence[SearchSource] = ()
    report_sources: Sequence[ReportSource] = ()
    notification_sources: Sequence[NotificationSource] = ()
    topic_sources: Sequence[TopicSource] = ()
    inspectors: Sequence[Inspector] = ()  # audit checks against data outside Valkey
    encrypted: Sequence[EncryptedFields] = ()
    # Emit the events of writes through the proxy, by the pattern of the keys.
    on_proxy_write: Mapping[str, EmitChanges] = field(default_factory=dict)
    # Make due what was stored with a later time than now, after a clock was set back.
    on_clock_set_back: Sequence[OnSetBack] = ()
    # Called before the connections close.
    on_close: Sequence[Callable[[], None]] = ()


class Domain(Struct, frozen=True):
    """A domain's declaration. Its tables are found by its folder `migrations/versions`."""

    library: Library  # its name, its catalogue of keys and its Lua
    routes: Sequence[Routes]
    build: Callable[[Core], Parts]
    invariants: Invariants = field(default_factory=Invariants)  # those that the catalogue cannot declare
    events: Sequence[type[EventData]] = ()  # the types that it emits
    requires: Sequence[str] = ()  # domains without which it cannot run
    uses_all: bool = False  # it is built after the domains of other packages, to use what they offer

    @property
    def migrations(self) -> Path | None:
        """The folder of its migrations, beside the module that declares it; None if it has no tables."""
        folder = Path(inspect.getfile(self.build)).parent / "migrations" / "versions"
        return folder if folder.is_dir() else None

    @property
    def name(self) -> str:
        return self.library.name

    @property
    def catalogue(self) -> Catalogue:
        return self.library.catalogue


def build_domains(core: Core, domains: Sequence[Domain]) -> list[Parts]:
    """Build the domains in order, each with what those before it provide; then what needs something of all."""
    parts, provided = [], core.provided
    core = replace(core, event_types={domain.name: domain.events for domain in domains if domain.events})
    for domain in domains:
        sql = core.sql if domain.migrations is None else core.sql.for_domain()
        part = domain.build(replace(core, sql=sql, provided=provided))
        provided = provided.merged(part.provided)
        provided = replace(provided, search_sources=[*provided.search_sources, *part.search_sources])
        provided = replace(provided, report_sources=[*provided.report_sources, *part.report_sources])
        sources = [*provided.notification_sources, *part.notification_sources]
        provided = replace(provided, notification_sources=sources)
        if part.personal_data is not None:
            provided = replace(provided, personal_data={**provided.personal_data, domain.name: part.personal_data})
        parts.append(part)
    return [*parts, *(part.build_last(provided) for part in parts if part.build_last is not None)]
