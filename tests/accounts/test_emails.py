"""E-mail addresses are verified and passwords reset by one-time links, through a real mail server."""

from __future__ import annotations

import asyncio

import httpx

from plaza.accounts.email_links import Emails
from plaza.accounts.keys import ACCOUNT_EMAIL, ADDRESS_USERS
from plaza.accounts.model import digest
from plaza.app import Plaza
from plaza.social.account_renaming import AccountRenaming
from tests.accounts.conftest import ON_BOTH, PASSWORD, Account
from tests.http_servers import is_problem
from tests.smtp import Mailbox
from tests.waiting import eventually

ADDRESS = "ana@example.org"


async def login(http: httpx.AsyncClient, password: str) -> int:
    return (await http.post("/auth/login", json={"username": "ana", "password": password})).status_code


@ON_BOTH
async def test_a_link_verifies_the_address_once(ana: Account, plaza: Plaza, mailbox: Mailbox) -> None:
    await ana.send("/auth/email", 202, password=PASSWORD, email="  Ana@Example.org ")
    await eventually(lambda: mailbox.mails)
    assert mailbox.mails[0]["to"] == ADDRESS
    assert "https://plaza.example/app/verify-email?token=" in mailbox.mails[0].get_content()
    assert not await plaza.get(Emails).is_verified("ana")
    token = await ana.next_link()
    assert await ana.send("/auth/email/verify", token=token) == {"username": "ana", "email": ADDRESS}
    assert await plaza.get(Emails).is_verified("ana")
    is_problem(await ana.http.post("/auth/email/verify", json={"token": token}), 400, "invalid_link")


async def test_a_stolen_token_cannot_change_the_address(ana: Account, plaza: Plaza) -> None:
    await ana.verify(ADDRESS)
    for password in (None, "wrong horse battery"):
        problem = await ana.send("/auth/email", 403, password=password, email="eve@example.org")
        assert problem["code"] == "password_wrong"
    assert await plaza.get(Emails).is_verified("ana")


async def test_an_address_that_changed_meanwhile_is_not_verified(ana: Account, plaza: Plaza) -> None:
    await ana.send("/auth/email", 202, password=PASSWORD, email=ADDRESS)
    token = await ana.next_link()
    await ana.send("/auth/email", 202, password=PASSWORD, email="other@example.org")
    await ana.next_link()
    is_problem(await ana.http.post("/auth/email/verify", json={"token": token}), 409, "email_changed")
    assert not await plaza.get(Emails).is_verified("ana")


@ON_BOTH
async def test_a_reset_link_sets_a_password_and_ends_every_session(ana: Account, http: httpx.AsyncClient) -> None:
    await ana.verify(ADDRESS)
    session = (await http.post("/auth/login", json={"username": "ana", "password": PASSWORD})).json()
    await ana.send("/auth/reset", 202, email=ADDRESS)
    token = await ana.next_link()
    assert await ana.send("/auth/reset/confirm", token=token, password="new horse battery") == {"username": "ana"}
    assert await login(http, PASSWORD) == 401
    assert await login(http, "new horse battery") == 200
    again = await http.post("/auth/refresh", json={"refresh_token": session["refresh_token"]})
    assert again.status_code == 401
    whoami = await http.get("/whoami", headers={"authorization": f"Bearer {session['access_token']}"})
    assert whoami.status_code == 401
    used = await http.post("/auth/reset/confirm", json={"token": token, "password": "third horse battery"})
    is_problem(used, 400, "invalid_link")


async def test_a_weak_password_does_not_use_a_link_up(ana: Account, http: httpx.AsyncClient) -> None:
    await ana.verify(ADDRESS)
    await ana.send("/auth/reset", 202, email=ADDRESS)
    token = await ana.next_link()
    await ana.send("/auth/reset/confirm", 422, token=token, password="password1")
    await ana.send("/auth/reset/confirm", token=token, password="new horse battery")
    assert await login(http, "new horse battery") == 200


async def test_a_reset_link_is_void_once_the_account_has_another_address(ana: Account, http: httpx.AsyncClient) -> None:
    await ana.verify(ADDRESS)
    await ana.send("/auth/reset", 202, email=ADDRESS)
    token = await ana.next_link()
    await ana.verify("new@example.org")
    confirmed = await http.post("/auth/reset/confirm", json={"token": token, "password": "new horse battery"})
    is_problem(confirmed, 400, "invalid_link")
    assert await login(http, PASSWORD) == 200


async def test_one_reset_link_sets_one_password(ana: Account, http: httpx.AsyncClient) -> None:
    await ana.verify(ADDRESS)
    await ana.send("/auth/reset", 202, email=ADDRESS)
    token = await ana.next_link()
    bodies = [{"token": token, "password": f"new horse battery {number}"} for number in range(5)]
    responses = await asyncio.gather(*(http.post("/auth/reset/confirm", json=body) for body in bodies))
    assert sorted(response.status_code for response in responses) == [200] + [400] * 4


async def test_only_verified_addresses_get_reset_links(ana: Account, http: httpx.AsyncClient, mailbox: Mailbox) -> None:
    await ana.send("/auth/email", 202, password=PASSWORD, email=ADDRESS)
    await ana.next_link()
    known = await http.post("/auth/reset", json={"email": ADDRESS})
    unknown = await http.post("/auth/reset", json={"email": "unknown@example.org"})
    assert (known.status_code, known.json()) == (unknown.status_code, unknown.json()) == (202, {"accepted": True})
    # The stream is handled in order: when the next verification mail is out, both requests were handled.
    await ana.send("/auth/email", 202, password=PASSWORD, email="third@example.org")
    await eventually(lambda: mailbox.mails)
    assert [mail["to"] for mail in mailbox.mails] == ["third@example.org"]


async def test_a_link_serves_its_own_purpose_only(ana: Account, http: httpx.AsyncClient) -> None:
    await ana.send("/auth/email", 202, password=PASSWORD, email=ADDRESS)
    token = await ana.next_link()
    reset = await http.post("/auth/reset/confirm", json={"token": token, "password": "new horse battery"})
    is_problem(reset, 400, "invalid_link")
    assert await login(http, PASSWORD) == 200


async def test_a_mail_server_that_was_away_gets_the_mail_later(ana: Account, mailbox: Mailbox) -> None:
    mailbox.refuse = True
    await ana.send("/auth/email", 202, password=PASSWORD, email=ADDRESS)
    await eventually(lambda: mailbox.refused)
    mailbox.refuse = False
    await ana.send("/auth/email/verify", token=await ana.next_link())


async def test_bad_addresses_are_refused_by_name(ana: Account) -> None:
    for email in ("ana", "ana@", "@example.org", "a b@example.org", "ana@exa\nmple.org", "a" * 300):
        problem = await ana.send("/auth/email", 422, password=PASSWORD, email=email)
        assert problem["field"] == "email" or problem["errors"][0]["field"] == "email"


@ON_BOTH
async def test_the_verified_address_follows_a_renaming_and_goes_with_the_account(ana: Account, plaza: Plaza) -> None:
    await ana.verify(ADDRESS)
    await plaza.get(AccountRenaming).rename("ana", "anna")
    assert await plaza.get(Emails).accounts_of(ADDRESS) == ["anna"]
    assert await plaza.core.valkey.call("EXISTS", ACCOUNT_EMAIL("ana")) == 0
    headers = {"x-api-key": plaza.core.settings.secret("api_key")}
    assert (await ana.http.request("DELETE", "/users/anna", headers=headers)).status_code in (200, 202)
    assert await plaza.core.valkey.call("EXISTS", ACCOUNT_EMAIL("anna")) == 0
    assert await plaza.core.valkey.call("EXISTS", ADDRESS_USERS(digest(ADDRESS))) == 0
