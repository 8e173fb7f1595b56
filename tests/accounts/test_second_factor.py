"""One-time codes and recovery codes at sign-in, with a real authenticator's arithmetic (pyotp)."""

from __future__ import annotations

import asyncio
import math
import time

import httpx
import pyotp

from plaza.accounts.keys import ACCOUNT_MFA
from plaza.accounts.second_factor import SecondFactors
from plaza.app import Plaza
from plaza.social.account_renaming import AccountRenaming
from tests.accounts.conftest import ON_BOTH, PASSWORD, Account
from tests.http_servers import is_problem


async def enable(ana: Account) -> tuple[pyotp.TOTP, list[str]]:
    """Turn codes on with the present code. The next one is accepted too, and still unused."""
    enrolled = await ana.send("/auth/mfa/totp", password=PASSWORD)
    totp = pyotp.parse_uri(enrolled["uri"])
    assert isinstance(totp, pyotp.TOTP)
    assert totp.secret == enrolled["secret"]
    confirmed = await ana.send("/auth/mfa/totp/confirm", code=_code(totp))
    return totp, confirmed["recovery_codes"]


def _code(totp: pyotp.TOTP, steps: int = 0) -> str:
    """Return the code of a time step. A past one is not sure to be accepted: the present step may end first."""
    return totp.at(int(time.time()), steps)


def next_code(totp: pyotp.TOTP) -> str:
    """Return a code that no request has used yet."""
    return _code(totp, 1)


async def login(http: httpx.AsyncClient, code: str | None = None, password: str = PASSWORD) -> httpx.Response:
    body = {"username": "ana", "password": password} | ({} if code is None else {"code": code})
    return await http.post("/auth/login", json=body)


async def test_signing_in_needs_a_code_once_it_is_confirmed(ana: Account, http: httpx.AsyncClient) -> None:
    await ana.send("/auth/mfa/totp", password=PASSWORD)
    assert (await login(http)).status_code == 200  # a secret that no code confirmed does not lock anyone out
    totp, _ = await enable(ana)
    is_problem(await login(http), 401, "mfa_required")
    is_problem(await login(http, password="wrong horse battery"), 401, "wrong_password")
    for wrong in ("000000", _code(totp, -3)):  # made up, expired
        is_problem(await login(http, wrong), 401, "wrong_code")
    assert (await login(http, next_code(totp))).status_code == 200


@ON_BOTH
async def test_a_code_works_once_also_for_simultaneous_logins(ana: Account, http: httpx.AsyncClient) -> None:
    totp, _ = await enable(ana)
    code = next_code(totp)
    responses = await asyncio.gather(*(login(http, code) for _ in range(10)))
    assert sorted(response.status_code for response in responses) == [200] + [401] * 9


async def test_codes_work_after_the_clock_was_set_back(ana: Account, http: httpx.AsyncClient, plaza: Plaza) -> None:
    totp, _ = await enable(ana)
    last = int(await plaza.core.valkey.call("HGET", ACCOUNT_MFA("ana"), "last_step"))
    await plaza.core.valkey.call("HSET", ACCOUNT_MFA("ana"), "last_step", last + 120)
    code = next_code(totp)
    assert (await login(http, code)).status_code == 200
    is_problem(await login(http, code), 401, "wrong_code")


@ON_BOTH
async def test_a_recovery_code_works_once(ana: Account, http: httpx.AsyncClient) -> None:
    _, codes = await enable(ana)
    assert len(set(codes)) == 10
    assert all(len(code) * math.log2(len(set("".join(codes)))) > 112 for code in codes)  # bits
    typed = " ".join([codes[0][:8].upper(), codes[0][8:]])
    responses = await asyncio.gather(*(login(http, typed) for _ in range(5)))
    assert sorted(response.status_code for response in responses) == [200] + [401] * 4
    status = await http.get("/auth/mfa", headers={"authorization": f"Bearer {ana.token}"})
    assert status.json() == {"enabled": True, "totp": True, "passkeys": 0, "recovery_codes_left": 9}


async def test_new_recovery_codes_replace_the_old_ones(ana: Account, http: httpx.AsyncClient) -> None:
    await ana.send("/auth/mfa/recovery-codes", 409, password=PASSWORD)
    _, codes = await enable(ana)
    await ana.send("/auth/mfa/recovery-codes", 403, password="wrong horse battery")
    renewed = (await ana.send("/auth/mfa/recovery-codes", password=PASSWORD))["recovery_codes"]
    is_problem(await login(http, codes[0]), 401, "wrong_code")
    assert (await login(http, renewed[0])).status_code == 200


async def test_a_stolen_token_cannot_turn_codes_on_or_off(ana: Account, http: httpx.AsyncClient) -> None:
    await ana.send("/auth/mfa/totp", 403, password="wrong horse battery")
    totp, codes = await enable(ana)
    await ana.send("/auth/mfa/totp", 403, password="wrong horse battery")
    await ana.send("/auth/mfa/totp/remove", 403, password="wrong horse battery", code=next_code(totp))
    await ana.send("/auth/mfa/totp/remove", 401, password=PASSWORD, code="000000")
    assert (await ana.send("/auth/mfa/totp/remove", password=PASSWORD, code=codes[1]))["enabled"] is False
    assert (await login(http)).status_code == 200


async def test_a_browser_session_needs_the_code_too(ana: Account, http: httpx.AsyncClient) -> None:
    totp, _ = await enable(ana)
    body = {"username": "ana", "password": PASSWORD}
    is_problem(await http.post("/shop/login", json=body), 401, "mfa_required")
    assert (await http.post("/shop/login", json={**body, "code": next_code(totp)})).status_code == 200


async def test_the_secret_is_not_readable_in_valkey(ana: Account, plaza: Plaza) -> None:
    enrolled = await ana.send("/auth/mfa/totp", password=PASSWORD)
    stored = await plaza.core.valkey.call("HGETALL", ACCOUNT_MFA("ana"))
    assert enrolled["secret"] not in str(stored)
    _, codes = await enable(ana)
    assert codes[0] not in str(await plaza.core.valkey.call("HGETALL", ACCOUNT_MFA("ana")))


@ON_BOTH
async def test_the_second_factor_follows_a_renaming(ana: Account, plaza: Plaza) -> None:
    totp, _ = await enable(ana)
    await plaza.get(AccountRenaming).rename("ana", "anna")
    assert not await plaza.get(SecondFactors).is_enabled("ana")
    assert await plaza.get(SecondFactors).verify("anna", next_code(totp))


async def test_a_damaged_secret_refuses_and_does_not_fail(ana: Account, plaza: Plaza, http: httpx.AsyncClient) -> None:
    await enable(ana)
    await plaza.core.valkey.call("HSET", ACCOUNT_MFA("ana"), "totp_secret", "v1:AAAA")
    is_problem(await login(http, "123456"), 401, "wrong_code")
