"""The proxy's routes on a real Valkey, with data that a plain Redis client wrote."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final

import httpx
import pytest

from plaza.app import catalogues
from plaza.core import rate_limits
from plaza.core.auth import Auth
from plaza.core.encryption import FieldEncryption
from plaza.core.functions import Functions
from plaza.core.http.app import App, make_app
from plaza.core.rate_limits import Limiter
from plaza.core.roles import Role
from plaza.core.settings import Settings
from plaza.core.valkey import Valkey
from plaza.keyspace.proxy import execution, routes
from plaza.keyspace.proxy.service import Proxy
from plaza.social import keys as social
from tests.http_servers import client_of

SETTINGS: Final = Settings(jwt_secret="s" * 32, api_key="k" * 32, rate_limits=False)
AUTH: Final = Auth(SETTINGS)
KEY: Final = SETTINGS.api_key

POST: Final = "11111111-1111-4111-8111-111111111111"
BANNED: Final = "22222222-2222-4222-8222-222222222222"
ENCRYPTION: Final = FieldEncryption(["d" * 32])
# No response may contain this.
SECRET: Final = "$argon2id$a-secret"


def token(name: str = "ana", role: Role = "user") -> str:
    return AUTH.issue(name, role)


@pytest.fixture
async def app(valkey: Valkey) -> App:
    functions = Functions(valkey, [execution.LIBRARY, rate_limits.LIBRARY])
    await functions.load()
    proxy = Proxy(functions, Limiter(functions, on=False), catalogues(), ENCRYPTION)
    return make_app([routes.route], {Proxy: proxy}, auth=AUTH, settings=SETTINGS)


@dataclass
class ProxyClient:
    """A caller of the proxy."""

    http: httpx.AsyncClient
    bearer: str

    async def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        return await self.http.post(path, json=body, headers={"authorization": f"Bearer {self.bearer}", **headers})

    async def run(self, *words: Any) -> Any:
        """Run one command. Returns its result, or the error of a refused one."""
        response = await self.post("/", list(words))
        body = response.json()
        assert response.status_code == (200 if "result" in body else 400), body
        return body["result"] if "result" in body else body["error"]


@pytest.fixture
async def http(app: App) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(app) as client:
        yield client


@pytest.fixture
async def community(valkey: Valkey, redis_client: Any) -> None:
    """Two users, a post, a banned post and secrets."""
    for name in ("ana", "bob"):
        profile = {"username": name, "display_name": name.title(), "bio": f"I am {name}", "role": "user"}
        counters = {"postCount": 1, "followerCount": 1, "followingCount": 0, "created_at": 1, "version": 1}
        private = {"email": f"{name}@private.example", "custom": f"{name}'s field", "password_hash": SECRET}
        await redis_client.hset(social.USER(name), mapping={**profile, **counters, **private})
        await redis_client.zadd(social.USER_BOOKMARKED(name), {POST: 5})
        await redis_client.zadd(social.USER_BLOCKED(name), {f"{name}s-enemy": 5})
        await redis_client.hset(social.AUTH_USER(name), mapping={"password_hash": SECRET})
        await redis_client.sadd(social.USER_FOLLOWERS(name), "cia", "dee")
    for post, more in ((POST, {}), (BANNED, {"banned": "true", "banned_by": "root"})):
        fields = {"id": post, "user_id": "bob", "content": f"words of {post[:4]}", "likesCount": 2, "user_version": 1}
        await redis_client.hset(social.POST(post), mapping={**fields, **more})
        await redis_client.sadd(social.POST_LIKES(post), "cia", "dee")
        comment = post.replace("1", "3").replace("2", "4")
        await redis_client.rpush(social.POST_COMMENTS(post), comment)
        await redis_client.hset(
            social.COMMENT(comment), mapping={"id": comment, "post_id": post, "content": "well said"}
        )
        await redis_client.sadd(social.POST_BOOKMARKS(post), "ana")
    await redis_client.zadd(social.EXPLORE_FEED(), {POST: 1_700_000_000_123})


@pytest.fixture
def ana(http: httpx.AsyncClient, community: None) -> ProxyClient:
    return ProxyClient(http, token())


@pytest.fixture
def api_key_client(http: httpx.AsyncClient, community: None) -> ProxyClient:
    """A client with the API key."""
    return ProxyClient(http, KEY)
