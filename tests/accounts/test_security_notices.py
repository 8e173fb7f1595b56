"""Users are told by mail what happens to their accounts, at the address that they verified."""

from __future__ import annotations

import pyotp

from plaza.app import Plaza
from plaza.commands.api_keys import _tell_admins
from plaza.core.auth import API
from plaza.core.clients import ClientInfo
from plaza.social.accounts import Accounts
from plaza.social.model import PasswordLogin
from plaza.social.password_changes import PasswordChanges
from plaza.social.users import Users
from tests.accounts.authenticator import Authenticator
from tests.accounts.conftest import ON_BOTH, PASSWORD, Account
from tests.smtp import Mailbox
from tests.waiting import eventually

ADDRESS = "ana@example.org"
NEW_PASSWORD = "another horse battery"


async def expect(mailbox: Mailbox, sentence: str) -> str:
    """Wait for a mail that says this, to the verified address. Returns its text."""
    await eventually(lambda: [mail for mail in mailbox.mails if sentence in mail.get_content()])
    (mail,) = [mail for mail in mailbox.mails if sentence in mail.get_content()]
    assert (mail["to"], mail["subject"]) == (ADDRESS, "Security of your account")
    return str(mail.get_content())


@ON_BOTH
async def test_security_changes_are_mailed_to_the_verified_address(
    ana: Account, plaza: Plaza, mailbox: Mailbox
) -> None:
    await ana.send("/auth/password", old=PASSWORD, new=NEW_PASSWORD)  # no address is verified yet
    ana.token = (await ana.send("/auth/login", username="ana", password=NEW_PASSWORD))["access_token"]
    await ana.send("/auth/email", 202, email=ADDRESS, password=NEW_PASSWORD)
    await ana.send("/auth/email/verify", token=await ana.next_link())
    assert mailbox.mails == []

    enrolled = await ana.send("/auth/mfa/totp", password=NEW_PASSWORD)
    codes = await ana.send("/auth/mfa/totp/confirm", code=pyotp.TOTP(enrolled["secret"]).now())
    await expect(mailbox, "one-time codes were turned on")
    code = codes["recovery_codes"][0]
    await ana.send("/auth/mfa/totp/remove", password=NEW_PASSWORD, code=code)
    await expect(mailbox, "one-time codes were turned off")
    options = (await ana.send("/auth/passkeys/options", password=NEW_PASSWORD))["options"]
    passkey = await ana.send("/auth/passkeys", 201, name="Phone", credential=Authenticator().create(options))
    await expect(mailbox, "a passkey was added")
    await ana.send("/auth/mfa/recovery-codes", password=NEW_PASSWORD)
    await expect(mailbox, "your recovery codes were replaced")
    await ana.delete(f"/auth/passkeys/{passkey['id']}", password=NEW_PASSWORD)
    await expect(mailbox, "a passkey of your account was removed")

    # The new address is not verified: the old one is told.
    await ana.send("/auth/email", 202, email="eve@example.org", password=NEW_PASSWORD)
    text = await expect(mailbox, "the e-mail address of your account was changed")
    assert "127.0.0.0" in text  # truncated
    await plaza.get(PasswordChanges).set("ana", PASSWORD)  # by an operator
    text = await expect(mailbox, "the password of your account was changed")
    assert PASSWORD not in text
    assert "https://plaza.example/app/forgot-password" in text

    await plaza.get(Users).set_role(API, "ana", "admin")
    await _tell_admins(plaza)
    await expect(mailbox, "an API key was created")


async def test_a_reset_and_a_deletion_are_mailed(ana: Account, mailbox: Mailbox) -> None:
    await ana.verify(ADDRESS)
    await ana.send("/auth/reset", 202, email=ADDRESS)
    await ana.send("/auth/reset/confirm", token=await ana.next_link(), password=NEW_PASSWORD)
    assert NEW_PASSWORD not in await expect(mailbox, "the password of your account was set by a link in a mail")
    ana.token = (await ana.send("/auth/login", username="ana", password=NEW_PASSWORD))["access_token"]
    await ana.delete("/users/me", password=NEW_PASSWORD)
    await expect(mailbox, "your account was deleted")


async def test_only_a_sign_in_from_a_new_place_is_mailed(ana: Account, plaza: Plaza, mailbox: Mailbox) -> None:
    await ana.verify(ADDRESS)
    await ana.send("/auth/login", username="ana", password=PASSWORD)  # as at the registration
    login, elsewhere = PasswordLogin("ana", PASSWORD), ClientInfo("198.51.100.7", "Firefox/1 on Linux")
    accounts = plaza.get(Accounts)
    await accounts.login(login, elsewhere)
    await expect(mailbox, "someone signed in to your account")
    mailbox.mails.clear()
    await accounts.login(login, ClientInfo("198.51.100.8"))  # the same network
    await accounts.login(login, ClientInfo("203.0.113.9"))
    text = await expect(mailbox, "someone signed in to your account")
    assert "203.0.113.0" in text
    response = await ana.http.patch(
        "/users/me", json={"email": "eve@example.org"}, headers={"authorization": f"Bearer {ana.token}"}
    )
    assert response.status_code == 200
    await expect(mailbox, "the e-mail address of your account was changed")
    assert len(mailbox.mails) == 2
    mailbox.mails.clear()
    command = ["HSET", "user:me", "email", "eve@example.com"]
    response = await ana.http.post("/", json=command, headers={"authorization": f"Bearer {ana.token}"})
    assert response.json() == {"result": 0}
    await expect(mailbox, "the e-mail address of your account was changed")
