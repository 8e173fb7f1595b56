"""Named API keys: scoped, expiring, revoked at once in every process, and never stored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
from structlog.testing import capture_logs

from plaza.core import api_keys
from plaza.core.api_keys import ApiKeys, KeyNameTaken, Scope
from plaza.core.auth import Actor, Auth
from plaza.core.clock import ManualClock
from plaza.core.errors import Forbidden, Invalid, NotFound, Unauthenticated
from plaza.core.http.access import ADMIN, API_KEY, PUBLIC, USER, Access, require_access
from plaza.core.settings import Settings
from plaza.core.valkey import Valkey, connect
from tests.servers import Cluster, Server
from tests.waiting import eventually

SETTINGS = Settings(jwt_secret="s" * 32, api_key="k" * 32)


@pytest.fixture
async def keys(valkey: Valkey, clock: ManualClock) -> AsyncIterator[ApiKeys]:
    keys = ApiKeys(valkey, clock)
    await keys.start()
    yield keys
    await keys.close()


@pytest.fixture
async def other_process(place: Server | Cluster, clock: ManualClock) -> AsyncIterator[ApiKeys]:
    async with await connect(place.url) as valkey:
        keys = ApiKeys(valkey, clock)
        await keys.start()
        yield keys
        await keys.close()


async def test_a_key_is_known_and_revoked_in_every_process(keys: ApiKeys, other_process: ApiKeys) -> None:
    secret = await keys.create("billing", ("sync",))
    assert secret.startswith("plaza_")
    await eventually(lambda: other_process.find(secret))
    await keys.revoke("billing")
    assert keys.find(secret) is None
    await eventually(lambda: other_process.find(secret) is None)


async def test_the_secret_is_not_stored(keys: ApiKeys, redis_client: Any) -> None:
    secret = await keys.create("billing", ("sync",))
    assert secret not in str(await redis_client.hgetall("api-keys"))


async def test_the_last_use_is_stored_to_the_hour(
    keys: ApiKeys, other_process: ApiKeys, clock: ManualClock, redis_client: Any
) -> None:
    secret = await keys.create("billing", ("sync",))
    assert (await keys.list_all())[0].last_used_at is None

    async def is_used_now() -> bool:
        return (await keys.list_all())[0].last_used_at == clock.now_ms() // 3_600_000 * 3_600_000

    for process in (keys, other_process):
        clock.advance(seconds=3_600)
        await eventually(partial(process.find, secret))
        await eventually(is_used_now)
    await keys.revoke("billing")
    assert await redis_client.exists("api-keys:used") == 0


async def test_an_expired_key_is_no_key(keys: ApiKeys, clock: ManualClock) -> None:
    secret = await keys.create("billing", ("sync",), lifetime_days=90)
    await eventually(lambda: keys.find(secret))
    clock.advance(days=90)
    assert keys.find(secret) is None
    assert [key.name for key in await keys.list_all()] == ["billing"]


async def test_bad_names_and_scopes_are_refused(keys: ApiKeys) -> None:
    for name, scopes in (("", ("sync",)), ("x" * 51, ("sync",)), ("a\n", ("sync",)), ("a", ()), ("a", ("root",))):
        with pytest.raises(Invalid):
            await keys.create(name, scopes)  # type: ignore[arg-type]
    await keys.create("billing", ("sync",))
    with pytest.raises(KeyNameTaken):
        await keys.create("billing", ("admin",))
    with pytest.raises(NotFound):
        await keys.revoke("missing")


async def test_an_entry_that_another_program_damaged_is_ignored(keys: ApiKeys, redis_client: Any) -> None:
    secret = await keys.create("billing", ("sync",))
    await redis_client.hset("api-keys", "f" * 64, "not json")
    assert [key.name for key in await keys.list_all()] == ["billing"]
    await eventually(lambda: keys.find(secret))


async def test_an_outage_is_logged_once(keys: ApiKeys, redis_client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_keys, "RETRY_SECONDS", 0.01)
    reads = 0
    read = ApiKeys._read

    async def count(self: ApiKeys) -> None:
        nonlocal reads
        reads += 1
        await read(self)

    monkeypatch.setattr(ApiKeys, "_read", count)
    with capture_logs() as logs:
        await redis_client.set("api-keys", "text")
        await eventually(lambda: reads >= 3)
        assert [entry["event"] for entry in logs] == ["api_keys_unreadable"]


async def actor_with(keys: ApiKeys, *scopes: Scope) -> Actor:
    secret = await keys.create("-".join(scopes), scopes)
    await eventually(lambda: keys.find(secret))
    auth = Auth(SETTINGS, api_keys=keys)
    found = auth.actor({"x-api-key": secret})
    assert found is not None
    assert auth.actor({"authorization": f"Bearer {secret}"}) == found
    return found


@pytest.mark.parametrize(
    ("scopes", "access", "scope", "allowed"),
    [
        (("sync",), API_KEY, "sync", True),
        (("sync",), ADMIN, "read", False),
        (("sync",), ADMIN, None, False),
        (("read",), ADMIN, "read", True),
        (("read",), ADMIN, None, False),
        (("read",), API_KEY, "sync", False),
        (("admin",), ADMIN, None, True),
        (("admin",), API_KEY, "sync", True),
        (("admin",), USER, None, False),
        (("read",), PUBLIC, "read", True),
    ],
)
async def test_a_scope_opens_its_routes_and_no_others(
    keys: ApiKeys, scopes: tuple[Scope, ...], access: Access, scope: Scope | None, allowed: bool
) -> None:
    actor = await actor_with(keys, *scopes)
    if allowed:
        require_access(access, actor, scope=scope)
    else:
        with pytest.raises(Forbidden):
            require_access(access, actor, scope=scope)


async def test_an_unknown_key_is_refused(keys: ApiKeys) -> None:
    auth = Auth(SETTINGS, api_keys=keys)
    with pytest.raises(Unauthenticated):
        auth.actor({"x-api-key": "plaza_" + "x" * 43})
