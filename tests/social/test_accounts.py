"""Registration, sign-in and sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import bcrypt
import httpx
import pytest

from plaza.core import rate_limits
from plaza.core.auth import API, Actor
from plaza.core.errors import Forbidden, Invalid
from plaza.core.functions import Functions
from plaza.core.http.app import make_app
from plaza.core.paging import Page
from plaza.core.password_strength import WeakPassword
from plaza.core.rate_limits import Limiter
from plaza.core.sign_in_limits import SignInLimits
from plaza.core.valkey import REQUEST_USAGE, RequestUsage
from plaza.social.credentials import Credentials
from plaza.social.domain import DOMAIN
from plaza.social.keys import AUTH_USER, USER, USERS_MODELS, USERS_REGULAR
from plaza.social.model import (
    InvalidRefreshToken,
    PasswordChange,
    PasswordLogin,
    Registration,
    UsernameTaken,
    WrongPassword,
)
from plaza.social.password_changes import PasswordChanges
from plaza.social.refresh_tokens import MAX_SESSIONS
from tests.http_servers import client_of, is_problem
from tests.social.conftest import ADMIN, SETTINGS, Social

REGISTRATION = Registration(username="ana", password="correct horse", display_name="Ana", email="ana@mail.example")


async def test_a_registration_creates_the_documented_profile_and_signs_in(social: Social, redis_client: Any) -> None:
    signed = await social.accounts.register(REGISTRATION)
    profile = await redis_client.hgetall(USER("ana"))
    assert profile == {
        "username": "ana", "display_name": "Ana", "email": "ana@mail.example", "role": "user", "postCount": "0",
        "followerCount": "0", "followingCount": "0", "created_at": str(social.clock.now_ms()),
    }  # fmt: skip
    assert await redis_client.zscore(USERS_REGULAR(), "ana") == social.clock.now_ms()
    assert signed.user.email == "ana@mail.example"
    assert social.auth.actor({"authorization": f"Bearer {signed.access_token}"}) == Actor("ana", "user")
    secret = await redis_client.hgetall(AUTH_USER("ana"))
    assert secret["password_hash"].startswith("$argon2id$")
    assert signed.refresh_token.rsplit(".", 1)[1] not in str(secret), "a refresh token is stored as a hash"


async def test_a_username_is_unique_and_case_sensitive(social: Social) -> None:
    await social.accounts.register(REGISTRATION)
    with pytest.raises(UsernameTaken):
        await social.accounts.register(REGISTRATION)
    other = await social.accounts.register(Registration(username="Ana", password="another one"))
    assert other.user.username == "Ana"


@pytest.mark.parametrize("name", ["me", "AUTH"])
async def test_me_and_auth_are_not_usernames(social: Social, name: str) -> None:
    with pytest.raises(Invalid):
        await social.accounts.register(Registration(username=name, password="correct horse"))


async def test_a_login_fails_with_the_same_error_for_a_wrong_password_and_an_unknown_user(social: Social) -> None:
    await social.accounts.register(REGISTRATION)
    assert (await social.accounts.login(PasswordLogin("ana", "correct horse"))).user.username == "ana"
    for name, password in (("ana", "wrong horse"), ("missing", "correct horse"), ("", "x")):
        with pytest.raises(WrongPassword) as failed:
            await social.accounts.login(PasswordLogin(name, password))
        assert failed.value.detail == WrongPassword.title


async def test_sign_in_takes_a_fixed_number_of_round_trips(server: Any, social: Social) -> None:
    if social.valkey.clustered:
        return  # on a cluster the registries are on other nodes

    async def trips(work: Any) -> tuple[int, Any]:
        usage = RequestUsage()
        mark = REQUEST_USAGE.set(usage)
        try:
            done = await work
            return usage.trips, done
        finally:
            REQUEST_USAGE.reset(mark)

    count, signed = await trips(social.accounts.register(REGISTRATION))
    assert count == 1
    count, _ = await trips(social.accounts.login(PasswordLogin("ana", "correct horse")))
    assert count == 2
    count, _ = await trips(social.accounts.refresh(signed.refresh_token))
    assert count == 1


async def test_a_refresh_token_works_once_and_its_reuse_ends_the_family(social: Social) -> None:
    first = await social.accounts.register(REGISTRATION)
    second = await social.accounts.refresh(first.refresh_token)
    third = await social.accounts.refresh(second.refresh_token)
    with pytest.raises(InvalidRefreshToken):
        await social.accounts.refresh(second.refresh_token)
    with pytest.raises(InvalidRefreshToken):
        await social.accounts.refresh(third.refresh_token)
    assert await social.accounts.login(PasswordLogin("ana", "correct horse")), "only that family ended"


async def test_a_refresh_token_expires(social: Social) -> None:
    signed = await social.accounts.register(REGISTRATION)
    social.clock.advance(days=29)
    signed = await social.accounts.refresh(signed.refresh_token)
    social.clock.advance(days=31)
    with pytest.raises(InvalidRefreshToken):
        await social.accounts.refresh(signed.refresh_token)


async def test_an_invalid_refresh_token_is_refused(social: Social) -> None:
    await social.accounts.register(REGISTRATION)
    for token in ("", "x", "ana.x.y", "a:b." + "0" * 32 + ".s", "ana." + "0" * 32 + ".secret"):
        with pytest.raises(InvalidRefreshToken):
            await social.accounts.refresh(token)


async def test_logging_out_ends_one_session_or_all(social: Social) -> None:
    one = await social.accounts.register(REGISTRATION)
    two = await social.accounts.login(PasswordLogin("ana", "correct horse"))
    three = await social.accounts.login(PasswordLogin("ana", "correct horse"))
    await social.accounts.logout(None, one.refresh_token)
    two = await social.accounts.refresh(two.refresh_token)
    await social.accounts.logout(Actor("ana", "user"), None)
    for gone in (one, two, three):
        with pytest.raises(InvalidRefreshToken):
            await social.accounts.refresh(gone.refresh_token)


async def test_sessions_are_limited_and_the_oldest_is_removed(social: Social, redis_client: Any) -> None:
    first = await social.accounts.register(REGISTRATION)
    for _ in range(MAX_SESSIONS + 3):
        social.clock.advance(seconds=1)
        last = await social.accounts.login(PasswordLogin("ana", "correct horse"))
    assert await redis_client.hlen(AUTH_USER("ana")) == MAX_SESSIONS + 1
    with pytest.raises(InvalidRefreshToken):
        await social.accounts.refresh(first.refresh_token)
    assert await social.accounts.refresh(last.refresh_token)


async def test_a_new_password_ends_every_other_session(social: Social) -> None:
    signed = await social.accounts.register(REGISTRATION)
    ana = Actor("ana", "user")
    with pytest.raises(Forbidden):
        await social.parts[PasswordChanges].change(ana, PasswordChange("wrong", "battery staple"))
    changed = await social.parts[PasswordChanges].change(ana, PasswordChange("correct horse", "battery staple"))
    with pytest.raises(InvalidRefreshToken):
        await social.accounts.refresh(signed.refresh_token)
    assert await social.accounts.refresh(changed.refresh_token)
    with pytest.raises(WrongPassword):
        await social.accounts.login(PasswordLogin("ana", "correct horse"))
    assert await social.accounts.login(PasswordLogin("ana", "battery staple"))
    changes = [PasswordChange("battery staple", new) for new in ("one of two", "two of two")]
    racing = (social.parts[PasswordChanges].change(ana, change) for change in changes)
    ended = await asyncio.gather(*racing, return_exceptions=True)
    assert [type(one) for one in ended if isinstance(one, Exception)] == [Forbidden], (
        "the old password is accepted once"
    )


async def test_a_synced_hash_is_accepted_and_replaced(social: Social, redis_client: Any) -> None:
    await social.create_user("ana")
    old = bcrypt.hashpw(b"correct horse", bcrypt.gensalt(4)).decode()
    await redis_client.hset(AUTH_USER("ana"), "password_hash", old)
    assert await social.accounts.login(PasswordLogin("ana", "correct horse"))
    assert (await redis_client.hget(AUTH_USER("ana"), "password_hash")).startswith("$argon2id$")


async def test_a_suspension_takes_effect_at_once_and_can_be_lifted(social: Social, http: httpx.AsyncClient) -> None:
    signed = await social.accounts.register(REGISTRATION)
    headers = {"authorization": f"Bearer {signed.access_token}"}
    assert (await http.get("/whoami", headers=headers)).status_code == 200
    answer = await http.put("/users/ana/suspension", headers=social.token(ADMIN))
    assert answer.json()["suspended_at"] == social.clock.now_ms()
    assert (await http.get("/whoami", headers=headers)).status_code == 401
    credentials = {"username": "ana", "password": "correct horse"}
    assert (await http.post("/auth/login", json=credentials)).json()["code"] == "suspended"
    refused = await http.post("/auth/refresh", json={"refresh_token": signed.refresh_token})
    assert refused.status_code == 401
    social.clock.advance(seconds=1)
    assert (await http.delete("/users/ana/suspension", headers=social.token(ADMIN))).status_code == 200
    again = (await http.post("/auth/login", json=credentials)).json()
    fresh = {"authorization": f"Bearer {again['access_token']}"}
    assert (await http.get("/whoami", headers=fresh)).status_code == 200
    assert (await http.get("/whoami", headers=headers)).status_code == 401


async def test_setting_a_role_updates_the_registries(social: Social, redis_client: Any) -> None:
    await social.accounts.register(REGISTRATION)
    await social.users.set_role(ADMIN, "ana", "model")
    assert await redis_client.zscore(USERS_REGULAR(), "ana") is None
    assert await redis_client.zscore(USERS_MODELS(), "ana") == social.clock.now_ms()
    await social.users.set_role(API, "ana", "admin")
    assert await redis_client.exists(USERS_REGULAR()) == await redis_client.exists(USERS_MODELS()) == 0


async def test_a_former_model_is_not_on_later_pages_of_models(social: Social) -> None:
    for name in ("one", "two", "six"):
        await social.create_user(name, "model")
    viewer = Actor("eve", "user")
    first = await social.feeds.top_models(viewer, Page(limit=1))
    left = sorted({"one", "two", "six"} - {first.items[0].id})
    await social.users.set_role(ADMIN, left[0], "user")
    rest = await social.feeds.top_models(viewer, Page(cursor=first.pagination.next_cursor))
    assert [model.id for model in rest.items] == left[1:]


async def test_whoami_works_for_a_token_without_a_profile(social: Social, http: httpx.AsyncClient) -> None:
    answer = await http.get("/whoami", headers=social.token(Actor("guest", "model")))
    assert (answer.json()["id"], answer.json()["role"]) == ("guest", "model")


async def test_the_routes_of_accounts(http: httpx.AsyncClient) -> None:
    made = await http.post("/auth/register", json={"username": "ana", "password": "correct horse", "bio": "hi"})
    assert made.status_code == 201
    body = made.json()
    assert body.keys() == {"user", "access_token", "refresh_token", "expires_in"}
    assert (body["expires_in"], body["user"]["id"], body["user"]["bio"]) == (900, "ana", "hi")
    headers = {"x-access-token": body["access_token"]}
    for ask in (http.get, http.post):
        assert (await ask("/whoami", headers=headers)).json() == body["user"]
    assert (await http.get("/whoami")).status_code == 401
    turned = await http.post("/auth/refresh", json={"refresh_token": body["refresh_token"]})
    assert turned.status_code == 200
    change = {"old": "correct horse", "new": "battery staple"}
    changed = await http.post("/auth/password", json=change, headers=headers)
    assert changed.status_code == 200
    headers = {"authorization": f"Bearer {changed.json()['access_token']}"}
    assert (await http.post("/auth/logout", headers=headers)).json() == {"logged_out": True}
    assert (await http.post("/auth/logout", json={"refresh_token": "x"})).status_code == 401


BAD_REGISTRATIONS: list[tuple[dict[str, Any], str]] = [
    ({"username": "a:b", "password": "correct horse"}, "username"),
    ({"username": "a{b}", "password": "correct horse"}, "username"),
    ({"username": "a" * 31, "password": "correct horse"}, "username"),
    ({"username": "ana\n", "password": "correct horse"}, "username"),
    ({"username": "ana", "password": "short"}, "password"),
    ({"username": "ana", "password": "correct horse", "role": "admin"}, "role"),
    ({"username": "ana", "password": "correct horse", "postCount": 5}, "postCount"),
    ({"username": "ana", "password": "correct horse", "display_name": "a\u0000b"}, "display_name"),
]


async def test_a_repeated_registration_with_the_same_key_signs_in(
    social: Social, http: httpx.AsyncClient, redis_client: Any
) -> None:
    new, key = {"username": "ana", "password": "correct horse", "bio": "hi"}, {"idempotency-key": "one"}

    async def register(headers: dict[str, str], **other: str) -> httpx.Response:
        return await http.post("/auth/register", json=new | other, headers=headers)

    first, again = await asyncio.gather(register(key), register(key))
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json()["user"] == again.json()["user"]
    assert [answer.headers.get("idempotency-replayed") for answer in (first, again)].count("true") == 1
    for answer in (first, again):
        token = {"refresh_token": answer.json()["refresh_token"]}
        assert (await http.post("/auth/refresh", json=token)).status_code == 200
    stored = str(await redis_client.hgetall(AUTH_USER("ana")))
    assert first.json()["access_token"] not in stored
    for headers, other, code in (
        (key, {"password": "battery staple"}, "idempotency_key_reused"),
        (key, {"bio": "other"}, "idempotency_key_reused"),
        ({"idempotency-key": "two"}, {}, "username_taken"),
        ({}, {}, "username_taken"),
        ({"idempotency-key": "a b"}, {}, "invalid"),
    ):
        assert (await register(headers, **other)).json()["code"] == code
    social.clock.advance(seconds=86_400)
    assert (await register(key)).json()["code"] == "username_taken"


async def test_a_bad_registration_is_422_and_changes_nothing(
    social: Social, http: httpx.AsyncClient, redis_client: Any
) -> None:
    for body, field in BAD_REGISTRATIONS:
        answer = await http.post("/auth/register", json=body)
        assert (answer.status_code, answer.json()["field"]) == (422, field), body
    assert await redis_client.exists(USERS_REGULAR()) == 0


@pytest.fixture
async def limited(social: Social) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the routes with limits, whose address is the one it sends."""
    functions = Functions(social.valkey, [DOMAIN.library, rate_limits.LIBRARY])
    await functions.load()
    limiter = Limiter(functions, clock=social.clock)
    social.parts[Credentials].limits = SignInLimits(limiter, SETTINGS.jwt_secret, social.clock)
    settings = replace(SETTINGS, trusted_proxies=("127.0.0.1",))
    app = make_app(list(DOMAIN.routes), social.parts, auth=social.auth, settings=settings)
    async with client_of(app) as client:
        yield client


async def try_password(http: httpx.AsyncClient, password: str, address: str, device: str = "") -> httpx.Response:
    body = {"username": "ana", "password": password}
    headers = {"x-forwarded-for": address, "cookie": f"plaza-device={device}"}
    return await http.post("/auth/login", json=body, headers=headers)


async def test_ten_wrong_passwords_block_a_username_at_their_address_only(
    social: Social, limited: httpx.AsyncClient
) -> None:
    await social.accounts.register(REGISTRATION)
    attacker, owner = "203.0.113.9", "198.51.100.7"
    for _ in range(5):
        assert (await try_password(limited, "correct horse", attacker)).status_code == 200  # these do not count
    for _ in range(10):
        assert (await try_password(limited, "guess", attacker)).status_code == 401
    blocked = await try_password(limited, "correct horse", attacker)
    assert (blocked.status_code, int(blocked.headers["retry-after"]) > 0) == (429, True)
    assert (await try_password(limited, "correct horse", owner)).status_code == 200


async def test_many_addresses_cannot_lock_out_a_device_that_the_owner_uses(
    social: Social, limited: httpx.AsyncClient
) -> None:
    await social.accounts.register(REGISTRATION)
    device = (await try_password(limited, "correct horse", "198.51.100.7")).cookies["plaza-device"]
    for i in range(rate_limits.POLICIES["auth"].user.count):
        await social.parts[Credentials].limits.take("ana", f"203.0.{i}.9")
    assert (await try_password(limited, "correct horse", "198.51.100.7")).status_code == 429
    assert (await try_password(limited, "correct horse", "198.51.100.7", device)).status_code == 200
    assert (await try_password(limited, "correct horse", "198.51.100.8", device)).status_code == 200
    body = {"username": "bob", "password": "battery staple"}
    other = (await limited.post("/auth/register", json=body)).cookies["plaza-device"]
    assert (await try_password(limited, "correct horse", "198.51.100.7", other)).status_code == 429


async def test_registering_a_taken_name_locks_no_user_out(social: Social, limited: httpx.AsyncClient) -> None:
    await social.accounts.register(REGISTRATION)
    body = {"username": "ana", "password": "battery staple"}
    for _ in range(12):
        assert (await limited.post("/auth/register", json=body)).status_code in (409, 429)
    assert (await try_password(limited, "correct horse", "127.0.0.1")).status_code == 200


async def test_weak_passwords_are_refused_by_every_route_that_sets_one(social: Social, http: httpx.AsyncClient) -> None:
    registration = {"username": "ana", "password": "password1"}
    is_problem(await http.post("/auth/register", json=registration), 422, "weak_password")
    registered = await http.post("/auth/register", json={"username": "ana", "password": "correct horse"})
    headers = {"authorization": f"Bearer {registered.json()['access_token']}"}
    change = {"old": "correct horse", "new": "qwertyuiop"}
    problem = is_problem(await http.post("/auth/password", json=change, headers=headers), 422, "weak_password")
    assert problem["field"] == "new"
    with pytest.raises(WeakPassword):
        await social.parts[PasswordChanges].set("ana", "12345678")
