"""Passkeys: registered with the password, then signed in with alone or besides it, and what an attacker might try."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from plaza.accounts.keys import ACCOUNT_MFA, PASSKEY_USER
from plaza.accounts.passkey_challenges import PasskeyChallenges
from plaza.accounts.passkeys import MAX_PASSKEYS
from plaza.accounts.relying_party import RelyingParty
from plaza.app import Plaza
from plaza.core.clock import ManualClock
from plaza.core.settings import Settings
from plaza.social.account_renaming import AccountRenaming
from tests.accounts.authenticator import Authenticator, encode
from tests.accounts.conftest import ON_BOTH, PASSWORD, Account
from tests.http_servers import is_problem


async def add(ana: Account, device: Authenticator, name: str = "Phone", status: int = 201) -> Any:
    options = (await ana.send("/auth/passkeys/options", password=PASSWORD))["options"]
    return await ana.send("/auth/passkeys", status, name=name, credential=device.create(options))


async def challenge(http: httpx.AsyncClient) -> dict[str, Any]:
    options: dict[str, Any] = (await http.post("/auth/passkeys/challenge")).json()["options"]
    return options


async def sign_in(http: httpx.AsyncClient, credential: dict[str, Any]) -> httpx.Response:
    return await http.post("/auth/passkeys/login", json={"credential": credential})


async def login(http: httpx.AsyncClient, **proof: Any) -> httpx.Response:
    return await http.post("/auth/login", json={"username": "ana", "password": PASSWORD, **proof})


@ON_BOTH
async def test_a_passkey_signs_in_alone(ana: Account, http: httpx.AsyncClient) -> None:
    device = Authenticator()
    added = await add(ana, device)
    assert (added["name"], added["last_used_at"], len(added["recovery_codes"])) == ("Phone", None, 10)
    signed_in = await sign_in(http, device.get(await challenge(http)))
    assert signed_in.status_code == 200, signed_in.text
    assert signed_in.json()["user"]["username"] == "ana"
    own = {"authorization": f"Bearer {signed_in.json()['access_token']}"}
    (passkey,) = (await http.get("/auth/passkeys", headers=own)).json()["passkeys"]
    assert passkey["last_used_at"] >= passkey["created_at"]
    mfa = (await http.get("/auth/mfa", headers=own)).json()
    assert mfa == {"enabled": True, "totp": False, "passkeys": 1, "recovery_codes_left": 10}


async def test_a_passkey_is_a_second_factor_of_the_password(ana: Account, http: httpx.AsyncClient) -> None:
    device = Authenticator()
    codes = (await add(ana, device))["recovery_codes"]
    required = is_problem(await login(http), 401, "mfa_required")
    assert required["methods"] == ["passkey", "recovery_code"]
    assert (await login(http, passkey=device.get(await challenge(http)))).status_code == 200
    assert (await login(http, code=codes[0])).status_code == 200
    is_problem(await login(http, code=codes[0]), 401, "wrong_code")
    browser = {"username": "ana", "password": PASSWORD, "passkey": device.get(await challenge(http))}
    assert (await http.post("/shop/login", json=browser)).status_code == 200
    wrong = {"username": "ana", "password": "wrong horse battery", "passkey": device.get(await challenge(http))}
    is_problem(await http.post("/auth/login", json=wrong), 401, "wrong_password")


async def test_a_passkey_of_another_user_is_no_second_factor(ana: Account, http: httpx.AsyncClient) -> None:
    await add(ana, Authenticator())
    response = await http.post("/auth/register", json={"username": "eve", "password": PASSWORD})
    eve, device = Account("eve", http, ana.mailbox, response.json()["access_token"]), Authenticator()
    await add(eve, device)
    is_problem(await login(http, passkey=device.get(await challenge(http))), 401, "invalid_passkey")


@ON_BOTH
async def test_a_challenge_works_once(ana: Account, http: httpx.AsyncClient) -> None:
    device = Authenticator(counts=False)
    await add(ana, device)
    credential = device.get(await challenge(http))
    responses = await asyncio.gather(*(sign_in(http, credential) for _ in range(10)))
    assert sorted(response.status_code for response in responses) == [200] + [400] * 9
    options = (await ana.send("/auth/passkeys/options", password=PASSWORD))["options"]
    await ana.send("/auth/passkeys", 201, name="A", credential=Authenticator().create(options))
    await ana.send("/auth/passkeys", 400, name="B", credential=Authenticator().create(options))


async def test_only_challenges_of_this_server_count(ana: Account, http: httpx.AsyncClient) -> None:
    device = Authenticator()
    await add(ana, device)
    made_up = device.get({}, challenge="A" * 75)
    is_problem(await sign_in(http, made_up), 400, "invalid_challenge")
    registering = (await ana.send("/auth/passkeys/options", password=PASSWORD))["options"]
    is_problem(await sign_in(http, device.get(registering)), 400, "invalid_challenge")
    response = await http.post("/auth/register", json={"username": "eve", "password": PASSWORD})
    eve = Account("eve", http, ana.mailbox, response.json()["access_token"])
    other = Authenticator().create(registering)
    assert (await eve.send("/auth/passkeys", 400, name="Mine", credential=other))["code"] == "invalid_challenge"


async def test_a_challenge_expires(valkey_challenges: PasskeyChallenges, clock: ManualClock) -> None:
    issued = valkey_challenges.issue("sign_in")
    client_data = Authenticator().get({}, challenge=encode(issued))["response"]["clientDataJSON"]
    assert valkey_challenges.require_issued(client_data, "sign_in") == issued
    clock.advance(seconds=300)
    with pytest.raises(Exception, match="expired"):
        valkey_challenges.require_issued(client_data, "sign_in")


@pytest.fixture
def valkey_challenges(plaza: Plaza, clock: ManualClock) -> PasskeyChallenges:
    return PasskeyChallenges(plaza.core.valkey, "s" * 32, clock)


async def test_the_origin_the_domain_and_the_user_are_checked(ana: Account, http: httpx.AsyncClient) -> None:
    device = Authenticator()
    await add(ana, device)
    for wrong in ({"origin": "https://evil.example"}, {"domain": "evil.example"}, {"verifies_user": False}):
        options = (await ana.send("/auth/passkeys/options", password=PASSWORD))["options"]
        refused = Authenticator(**wrong).create(options)
        assert (await ana.send("/auth/passkeys", 401, name="Bad", credential=refused))["code"] == "invalid_passkey"
        for name, value in wrong.items():
            setattr(device, name, value)
        is_problem(await sign_in(http, device.get(await challenge(http))), 401, "invalid_passkey")
        device.origin, device.domain, device.verifies_user = "https://plaza.example", "plaza.example", True
    assert (await sign_in(http, device.get(await challenge(http)))).status_code == 200


async def test_a_copy_of_a_passkey_is_refused_by_its_counter(ana: Account, http: httpx.AsyncClient) -> None:
    device = Authenticator()
    await add(ana, device)
    assert (await sign_in(http, device.get(await challenge(http)))).status_code == 200
    device.count -= 1
    is_problem(await sign_in(http, device.get(await challenge(http))), 401, "invalid_passkey")
    device.count += 5
    assert (await sign_in(http, device.get(await challenge(http)))).status_code == 200


async def test_a_forged_signature_or_an_unknown_passkey_is_refused(ana: Account, http: httpx.AsyncClient) -> None:
    device = Authenticator()
    await add(ana, device)
    forged = Authenticator(credential_id=device.credential_id, user_handle=device.user_handle)
    is_problem(await sign_in(http, forged.get(await challenge(http))), 401, "invalid_passkey")
    is_problem(
        await sign_in(http, Authenticator(user_handle="AAAA").get(await challenge(http))), 401, "invalid_passkey"
    )
    device.user_handle = "AAAA"
    is_problem(await sign_in(http, device.get(await challenge(http))), 401, "invalid_passkey")
    garbage = {"id": "AA", "rawId": "AA", "type": "public-key", "response": {"clientDataJSON": "AA"}}
    is_problem(await sign_in(http, garbage), 422, "invalid")


async def test_a_stolen_token_cannot_add_or_remove_passkeys(ana: Account, http: httpx.AsyncClient) -> None:
    id = (await add(ana, Authenticator()))["id"]
    for password in (None, "wrong horse battery"):
        assert (await ana.send("/auth/passkeys/options", 403, password=password))["code"] == "password_wrong"
        own = {"authorization": f"Bearer {ana.token}"}
        body = {"password": password}
        refused = await http.request("DELETE", f"/auth/passkeys/{id}", json=body, headers=own)
        is_problem(refused, 403, "password_wrong")


@ON_BOTH
async def test_passkeys_are_renamed_and_removed(ana: Account, http: httpx.AsyncClient, plaza: Plaza) -> None:
    device, own = Authenticator(), {"authorization": f"Bearer {ana.token}"}
    id = (await add(ana, device))["id"]
    renamed = await http.patch(f"/auth/passkeys/{id}", json={"name": "Old phone"}, headers=own)
    assert renamed.json()["name"] == "Old phone"
    bad = await http.patch(f"/auth/passkeys/{id}", json={"name": "two\nlines"}, headers=own)
    assert is_problem(bad, 422, "invalid")["field"] == "name"
    is_problem(await http.patch(f"/auth/passkeys/{'0' * 64}", json={"name": "x"}, headers=own), 404, "not_found")
    removed = await http.request("DELETE", f"/auth/passkeys/{id}", json={"password": PASSWORD}, headers=own)
    assert removed.status_code == 204
    is_problem(await sign_in(http, device.get(await challenge(http))), 401, "invalid_passkey")
    assert (await login(http)).status_code == 200, "no second factor is left"
    assert (await http.get("/auth/mfa", headers=own)).json()["recovery_codes_left"] == 0
    assert await plaza.core.valkey.call("EXISTS", PASSKEY_USER(id)) == 0


async def test_a_passkey_belongs_to_its_first_user(ana: Account, http: httpx.AsyncClient) -> None:
    device = Authenticator()
    await add(ana, device)
    response = await http.post("/auth/register", json={"username": "eve", "password": PASSWORD})
    eve = Account("eve", http, ana.mailbox, response.json()["access_token"])
    assert (await add(eve, device, status=409))["code"] == "passkey_exists"
    assert (await add(ana, device, status=409))["code"] == "passkey_exists"


async def test_an_account_has_a_limited_number_of_passkeys(
    ana: Account, plaza: Plaza, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plaza.accounts.passkeys.MAX_PASSKEYS", 2)
    assert MAX_PASSKEYS > 2
    await add(ana, Authenticator())
    await add(ana, Authenticator())
    assert (await add(ana, Authenticator(), status=409))["code"] == "too_many_passkeys"
    assert await plaza.core.valkey.call("HLEN", ACCOUNT_MFA("ana")) == 1 + 2 + 10


async def test_a_suspended_user_cannot_sign_in_with_a_passkey(
    ana: Account, http: httpx.AsyncClient, plaza: Plaza
) -> None:
    device = Authenticator()
    await add(ana, device)
    key = {"x-api-key": plaza.core.settings.secret("api_key")}
    assert (await http.put("/users/ana/suspension", headers=key)).status_code == 200
    is_problem(await sign_in(http, device.get(await challenge(http))), 403, "suspended")


@ON_BOTH
async def test_passkeys_follow_a_renaming_and_go_with_the_account(
    ana: Account, http: httpx.AsyncClient, plaza: Plaza
) -> None:
    device = Authenticator()
    id = (await add(ana, device))["id"]
    await plaza.get(AccountRenaming).rename("ana", "anna")
    signed_in = await sign_in(http, device.get(await challenge(http)))
    assert signed_in.json()["user"]["username"] == "anna"
    export = await http.get("/users/me/export", headers={"authorization": f"Bearer {signed_in.json()['access_token']}"})
    assert export.json()["accounts"]["passkeys"][0]["name"] == "Phone"
    key = {"x-api-key": plaza.core.settings.secret("api_key")}
    assert (await http.request("DELETE", "/users/anna", headers=key)).status_code in (200, 202)
    assert await plaza.core.valkey.call("EXISTS", PASSKEY_USER(id)) == 0
    assert await plaza.core.valkey.call("EXISTS", ACCOUNT_MFA("anna")) == 0


@pytest.mark.parametrize(
    ("public_url", "id", "origin", "usable"),
    [
        ("https://plaza.example", "plaza.example", "https://plaza.example", True),
        ("https://plaza.example:8443/community", "plaza.example", "https://plaza.example:8443", True),
        ("http://localhost:9000", "localhost", "http://localhost:9000", True),
        ("", "localhost", "http://localhost:8000", True),
        ("http://plaza.example", "plaza.example", "http://plaza.example", False),
        ("https://192.0.2.7", "192.0.2.7", "https://192.0.2.7", False),
    ],
)
def test_the_public_address_decides_the_domain(public_url: str, id: str, origin: str, usable: bool) -> None:
    party = RelyingParty.from_settings(Settings(public_url=public_url))
    assert (party.id, party.origin, party.is_usable) == (id, origin, usable)
