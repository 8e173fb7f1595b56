"""The security page: e-mail address, one-time codes, recovery codes; and the pages of links in mails."""

from __future__ import annotations

import re

import pyotp

from plaza.accounts.email_links import Emails
from plaza.accounts.model import OneTimeLink
from plaza.app import Plaza
from tests.pages.conftest import PageClient

PAGE = "/app/security"
PASSWORD = "correct horse"


async def test_one_time_codes_work_without_scripts(ana: PageClient) -> None:
    page = await ana.get(PAGE)
    assert page.status_code == 200, page.text
    assert page.headers["cache-control"] == "no-store"
    wrong = await ana.submit(f"{PAGE}/totp", page=PAGE, password="wrong horse")
    assert (wrong.status_code, "The password is wrong" in wrong.text) == (422, True)
    started = await ana.submit(f"{PAGE}/totp", page=PAGE, password=PASSWORD)
    assert "<svg" in started.text
    secret = re.search(r'class="secret">(\w+)<', started.text)
    assert secret is not None
    refused = await ana.submit(f"{PAGE}/totp/confirm", page=PAGE, code="000000")
    assert (refused.status_code, secret[1] in refused.text) == (422, True), "the user can try again"
    code = pyotp.TOTP(secret[1]).now()
    done = await ana.submit(f"{PAGE}/totp/confirm", page=PAGE, code=f"{code[:3]} {code[3:]}")
    codes = re.findall(r"<li><code>([\w-]+)</code>", done.text)
    assert len(set(codes)) == 10
    assert codes[0] not in (await ana.get(PAGE)).text, "shown once"
    renewed = await ana.submit(f"{PAGE}/recovery-codes", page=PAGE, password=PASSWORD)
    fresh = re.findall(r"<li><code>([\w-]+)</code>", renewed.text)
    off = {"password": PASSWORD, "code": codes[0]}
    assert (await ana.submit(f"{PAGE}/totp/remove", page=PAGE, **off)).status_code == 422
    off["code"] = fresh[0]
    assert (await ana.submit(f"{PAGE}/totp/remove", page=PAGE, **off)).status_code == 303
    assert "One-time codes are off" in (await ana.get(f"{PAGE}?changed=codes-off")).text


async def test_an_address_is_changed_with_the_password(ana: PageClient, plaza: Plaza) -> None:
    fields = {"email": "ana@example.org", "password": "wrong horse"}
    wrong = await ana.submit(f"{PAGE}/email", page=PAGE, **fields)
    assert (wrong.status_code, "ana@example.org" in wrong.text) == (422, True), "what was written stays"
    bad = await ana.submit(f"{PAGE}/email", page=PAGE, email="nonsense", password=PASSWORD)
    assert (bad.status_code, "Invalid e-mail address" in bad.text) == (422, True)
    fields["password"] = PASSWORD
    assert (await ana.submit(f"{PAGE}/email", page=PAGE, **fields)).status_code == 303
    link = await plaza.get(Emails).new_link(OneTimeLink("verify", "ana", "ana@example.org"))
    opened = await ana.get(f"/app/verify-email?token={link}")
    assert "Confirm this address" in opened.text
    assert not await plaza.get(Emails).is_verified("ana"), "opening the link uses nothing up"
    done = await ana.submit("/app/verify-email", page="/app/verify-email", token=link)
    assert "ana@example.org is verified" in done.text
    assert "verified</span>" in (await ana.get(PAGE)).text
    again = await ana.submit("/app/verify-email", page="/app/verify-email", token=link)
    assert (again.status_code, "was used already" in again.text) == (400, True)


async def test_a_forgotten_password_is_replaced_by_a_link(ana: PageClient, guest: PageClient, plaza: Plaza) -> None:
    assert 'href="/app/forgot-password"' in (await guest.get("/app/sign-in")).text
    texts = [
        (await guest.submit("/app/forgot-password", page="/app/forgot-password", email=email)).text
        for email in ("ana@example.org", "unknown@example.org")
    ]
    without_names = [re.sub(r'\w+@example.org|(value|data-since)="[^"]*"', "", text) for text in texts]
    assert without_names[0] == without_names[1], "it does not tell which addresses have an account"
    bad = await guest.submit("/app/forgot-password", page="/app/forgot-password", email="nonsense")
    assert bad.status_code == 422
    emails = plaza.get(Emails)
    await ana.submit(f"{PAGE}/email", page=PAGE, email="ana@example.org", password=PASSWORD)
    await emails.verify(await emails.new_link(OneTimeLink("verify", "ana", "ana@example.org")), None)
    link = await emails.new_link(OneTimeLink("reset", "ana", "ana@example.org"))
    page = f"/app/reset-password?token={link}"
    weak = await guest.submit("/app/reset-password", page=page, token=link, password="password1")
    assert (weak.status_code, link in weak.text) == (422, True), "the user can choose another password"
    done = await guest.submit("/app/reset-password", page=page, token=link, password="new horse battery")
    assert "Your password is changed" in done.text
    assert "Sign out" not in (await ana.get("/app")).text
    used = await guest.submit("/app/reset-password", page=page, token=link, password="third horse battery")
    assert used.status_code == 400
