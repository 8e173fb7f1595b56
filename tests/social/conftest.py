"""Social on a real Valkey, with users and a clock that tests set."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import httpx
import pytest

from plaza.core import paging
from plaza.core.auth import API, Actor, Auth
from plaza.core.clock import ManualClock
from plaza.core.domain import Core, Parts, PersonalData, Provided, build_domains
from plaza.core.functions import Functions
from plaza.core.http.app import make_app
from plaza.core.http.app_options import AppOptions
from plaza.core.idempotency import Idempotency
from plaza.core.leases import JOBS
from plaza.core.rate_limits import Limiter
from plaza.core.revocations import Revocations, ended_sessions
from plaza.core.roles import Role
from plaza.core.settings import Settings
from plaza.core.sql import Sql
from plaza.core.valkey import REQUEST_USAGE, RequestUsage, Valkey
from plaza.social.account_deletion import AccountDeletion
from plaza.social.accounts import Accounts
from plaza.social.comments import Comments
from plaza.social.domain import DOMAIN
from plaza.social.engagements import Engagements
from plaza.social.feeds import Feeds
from plaza.social.home_feed import HomeFeed
from plaza.social.inbound_sync import InboundSync
from plaza.social.jobs import SocialJobs
from plaza.social.keys import MODELS_TOP_ENGAGEMENT, USER, USERS_MODELS, USERS_REGULAR
from plaza.social.model import NewPost, Post
from plaza.social.posts import Posts
from plaza.social.relations import Relations
from plaza.social.users import Users
from tests.http_servers import client_of
from tests.social.consistency import Keyspace, read_all, violations

T = TypeVar("T")

SETTINGS = Settings(jwt_secret="s" * 32, api_key="k" * 32, data_key="d" * 32, rate_limits=False)
ADMIN = Actor("root", "admin")


@dataclass
class Social:
    """The services of the domain, and helpers for tests."""

    valkey: Valkey
    functions: Functions
    auth: Auth
    clock: ManualClock
    parts: dict[type, Any]

    @property
    def accounts(self) -> Accounts:
        return self._get(Accounts)

    @property
    def users(self) -> Users:
        return self._get(Users)

    @property
    def relations(self) -> Relations:
        return self._get(Relations)

    @property
    def posts(self) -> Posts:
        return self._get(Posts)

    @property
    def engagements(self) -> Engagements:
        return self._get(Engagements)

    @property
    def comments(self) -> Comments:
        return self._get(Comments)

    @property
    def feeds(self) -> Feeds:
        return self._get(Feeds)

    @property
    def home(self) -> HomeFeed:
        return self._get(HomeFeed)

    @property
    def deletion(self) -> AccountDeletion:
        return self._get(AccountDeletion)

    @property
    def sync(self) -> InboundSync:
        return self._get(InboundSync)

    @property
    def jobs(self) -> SocialJobs:
        return self._get(SocialJobs)

    def _get(self, kind: type[T]) -> T:
        found: T = self.parts[kind]
        return found

    async def create_user(self, name: str, role: Role = "user", **fields: str) -> Actor:
        """Create a user with a profile, without the cost of a password."""
        created = self.clock.now_ms()
        counters = ("postCount", 0, "followerCount", 0, "followingCount", 0)
        more = [part for pair in fields.items() for part in pair]
        await self.valkey.call(
            "HSET", USER(name), "username", name, "role", role, "created_at", created, *counters, *more
        )
        registry = {"user": USERS_REGULAR(), "model": USERS_MODELS()}.get(role)
        if registry:
            await self.valkey.call("ZADD", registry, created, name)
        if role == "model":
            await self.valkey.call("ZADD", MODELS_TOP_ENGAGEMENT(), 0, name)
        return Actor(name, role)

    async def post(self, author: Actor, content: str = "hello") -> Post:
        return await self.posts.create(author, NewPost(content))

    def token(self, actor: Actor) -> dict[str, str]:
        if actor is API:
            return {"x-api-key": SETTINGS.api_key}
        return {"authorization": f"Bearer {self.auth.issue(actor.name, actor.role)}"}


def build_social(
    functions: Functions, auth: Auth, clock: ManualClock, personal_data: Mapping[str, PersonalData] | None = None
) -> list[Parts]:
    limiter = Limiter(functions, on=False)
    sql = cast(Sql, None)  # social has no tables
    provided = Provided(personal_data={} if personal_data is None else personal_data)
    core = Core(SETTINGS, functions.valkey, functions, sql, auth, limiter, clock, provided)
    return build_domains(core, [DOMAIN])


def services_by_type(parts: Sequence[Parts]) -> dict[type, Any]:
    return {type(service): service for part in parts for service in part.services}


@pytest.fixture
def other_domains() -> dict[str, PersonalData]:
    """The personal data of other domains, by name. A test adds to it."""
    return {}


@pytest.fixture
async def social(valkey: Valkey, clock: ManualClock, other_domains: dict[str, PersonalData]) -> AsyncIterator[Social]:
    functions = Functions(valkey, [DOMAIN.library, paging.LIBRARY, JOBS])
    await functions.load()
    revocations = Revocations(valkey, clock=clock)
    await revocations.start()
    ended = ended_sessions(valkey, clock)
    await ended.start()
    auth = Auth(SETTINGS, revocations, ended_sessions=ended, clock=clock)
    parts = build_social(functions, auth, clock, other_domains)
    yield Social(valkey, functions, auth, clock, services_by_type(parts))
    await functions.outbox.drain()
    for close in (close for part in parts for close in part.on_close):
        close()
    await ended.close()
    await revocations.close()


@pytest.fixture
async def ana(social: Social) -> Actor:
    return await social.create_user(
        "ana", display_name="Ana", avatar="https://img.example/ana.png", email="ana@mail.example"
    )


@pytest.fixture
async def bob(social: Social) -> Actor:
    return await social.create_user("bob")


@pytest.fixture
async def http(social: Social) -> AsyncIterator[httpx.AsyncClient]:
    """An HTTP client of the routes, over a real socket."""
    app = make_app(
        list(DOMAIN.routes),
        social.parts,
        auth=social.auth,
        settings=SETTINGS,
        options=AppOptions(idempotency=Idempotency(social.valkey, social.clock)),
    )
    async with client_of(app) as client:
        yield client


@pytest.fixture
def assert_consistent(social: Social, redis_client: Any) -> Callable[[], Awaitable[Keyspace]]:
    """Check all keys for consistency with a plain client. Returns the keys."""

    async def check() -> Keyspace:
        await social.functions.outbox.drain()
        keyspace = await read_all(redis_client)
        assert violations(keyspace, social.clock.now_ms()) == []
        assert not keyspace["pending"], "an outbox entry is not settled"
        return keyspace

    return check


async def trips(work: Awaitable[Any]) -> int:
    """Return the number of round trips that an operation takes."""
    usage = RequestUsage()
    mark = REQUEST_USAGE.set(usage)
    try:
        await work
    finally:
        REQUEST_USAGE.reset(mark)
    return usage.trips
