"""Passkeys, one-time codes and links in mails, in a real browser with a virtual authenticator.

The server is opened at `localhost`, because browsers have no passkeys for an IP address.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import pyotp
import pytest
from playwright.sync_api import Browser, CDPSession, Page, expect

from tests.browser.accessibility import look_at
from tests.browser.community import PASSWORD, BrowserWindow
from tests.processes import ServerProcess, until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("sign-in") / "var"
    server = ServerProcess(folder, "serve", "--empty", PLAZA_RATE_LIMITS="off", PLAZA_PORT=str(port))
    try:
        yield server.wait_for("Ctrl-C stops it.")
    finally:
        server.process.kill()
        server.process.wait()


@pytest.fixture
def window(browser: Browser, server: ServerProcess) -> Iterator[BrowserWindow]:
    url = server.url.replace("127.0.0.1", "localhost")
    window = BrowserWindow(browser, url, viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    yield window
    window.errors = [line for line in window.errors if "422" not in line]  # refused forms
    window.close()


def authenticator(window: BrowserWindow, **options: Any) -> tuple[CDPSession, str]:
    """A virtual authenticator of the window, which verifies its user, as a phone does."""
    devtools = window.context.new_cdp_session(window.page)
    devtools.send("WebAuthn.enable")
    described = {
        "protocol": "ctap2",
        "transport": "internal",
        "hasResidentKey": True,
        "hasUserVerification": True,
        "isUserVerified": True,
        "automaticPresenceSimulation": True,
        **options,
    }
    added = devtools.send("WebAuthn.addVirtualAuthenticator", {"options": described})
    return devtools, added["authenticatorId"]


def add_passkey(page: Page, name: str = "Phone") -> list[str]:
    """Add a passkey on the security page. Returns the recovery codes that it shows."""
    page.goto("/app/security")
    page.get_by_label("Name of the device").fill(name)
    page.locator("#passkey-password").fill(PASSWORD)
    page.get_by_role("button", name="Add a passkey").click()
    expect(page.get_by_text("The passkey is added.")).to_be_visible()
    return page.locator(".recovery-codes code").all_inner_texts()


def sign_out(page: Page) -> None:
    page.get_by_role("button", name="Sign out", exact=True).click()
    expect(page.get_by_role("banner").get_by_role("link", name="Sign in")).to_be_visible()


def test_a_passkey_signs_in_without_username_and_password(window: BrowserWindow) -> None:
    authenticator(window)
    page = window.sign_up("pia")
    codes = add_passkey(page)
    assert len(set(codes)) == 10
    expect(page.get_by_text("not used yet")).to_be_visible()
    sign_out(page)
    page.goto("/app/sign-in?next=/app/security")
    page.get_by_role("button", name="Sign in with a passkey").click()
    page.wait_for_url(f"{window.url}/app/security")
    expect(page.get_by_text("last used")).to_be_visible()
    page.get_by_text("Rename or remove").click()
    page.get_by_label("Name", exact=True).fill("Old phone")
    page.get_by_role("button", name="Rename").click()
    expect(page.locator(".passkey b")).to_have_text("Old phone")
    page.get_by_text("Rename or remove").click()
    page.locator("#remove-1").fill(PASSWORD)
    page.get_by_role("button", name="Remove passkey").click()
    expect(page.get_by_text("The passkey is removed.")).to_be_visible()
    expect(page.locator(".passkey")).to_have_count(0)


def test_a_passkey_is_needed_besides_the_password(window: BrowserWindow) -> None:
    authenticator(window)
    page = window.sign_up("paul")
    codes = add_passkey(page)
    sign_out(page)
    sign_in(page, "paul")
    expect(page.get_by_role("alert")).to_contain_text("needs a code or a passkey")
    page.get_by_role("button", name="Sign in with a passkey").click()
    page.wait_for_url(f"{window.url}/app")
    sign_out(page)
    sign_in(page, "paul")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_label("Code").fill(codes[0])
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.wait_for_url(f"{window.url}/app")


def sign_in(page: Page, name: str) -> None:
    page.goto("/app/sign-in")
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in", exact=True).click()


def test_a_user_whom_the_device_does_not_verify_is_refused(window: BrowserWindow) -> None:
    devtools, id = authenticator(window)
    page = window.sign_up("pete")
    add_passkey(page)
    sign_out(page)
    devtools.send("WebAuthn.setUserVerified", {"authenticatorId": id, "isUserVerified": False})
    page.goto("/app/sign-in")
    page.get_by_role("button", name="Sign in with a passkey").click()
    expect(page.get_by_text("The passkey was not used. Try again.")).to_be_visible()


def test_a_copied_passkey_is_refused_by_its_counter(window: BrowserWindow) -> None:
    devtools, id = authenticator(window)
    page = window.sign_up("paula")
    add_passkey(page)
    sign_out(page)
    (copy,) = devtools.send("WebAuthn.getCredentials", {"authenticatorId": id})["credentials"]
    page.goto("/app/sign-in")
    page.get_by_role("button", name="Sign in with a passkey").click()
    page.wait_for_url(f"{window.url}/app")
    sign_out(page)
    devtools.send("WebAuthn.removeCredential", {"authenticatorId": id, "credentialId": copy["credentialId"]})
    devtools.send("WebAuthn.addCredential", {"authenticatorId": id, "credential": {**copy, "signCount": 0}})
    page.goto("/app/sign-in")
    page.get_by_role("button", name="Sign in with a passkey").click()
    expect(page.get_by_role("alert")).to_contain_text("The passkey was not accepted.")


def test_one_time_codes_are_set_up_and_asked_for(window: BrowserWindow) -> None:
    page = window.sign_up("tom")
    page.goto("/app/security")
    page.locator("#totp-password").fill(PASSWORD)
    page.get_by_role("button", name="Set up one-time codes").click()
    expect(page.get_by_role("img", name="QR code for an authenticator app")).to_be_visible()
    totp = pyotp.TOTP(page.locator("code.secret").inner_text())
    page.get_by_label("Code", exact=True).fill("000000")
    page.get_by_role("button", name="Turn on").click()
    expect(page.get_by_role("alert")).to_contain_text("wrong")
    page.get_by_label("Code", exact=True).fill(totp.now())
    page.get_by_role("button", name="Turn on").click()
    assert len(page.locator(".recovery-codes code").all_inner_texts()) == 10
    sign_out(page)
    sign_in(page, "tom")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_label("Code").fill(totp.at(int(time.time()), 1))  # the present one is used
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.wait_for_url(f"{window.url}/app")


def next_link(server: ServerProcess, known: set[Path]) -> str:
    """Wait for a new mail and return the link in it."""
    folder = server.data_dir / "mail"
    until(lambda: set(folder.glob("*.eml")) - known)
    (mail,) = set(folder.glob("*.eml")) - known
    known.add(mail)
    text = message_from_bytes(mail.read_bytes(), policy=policy.default).get_content()
    found = re.search(r"http\S+(/app/\S+)", text)
    assert found is not None
    return found[1]


def test_mails_verify_an_address_and_reset_a_password(window: BrowserWindow, server: ServerProcess) -> None:
    page, mails = window.sign_up("emil"), set((server.data_dir / "mail").glob("*.eml"))
    page.goto("/app/security")
    page.get_by_label("Address", exact=True).fill("emil@example.org")
    page.locator("#email-password").fill(PASSWORD)
    page.get_by_role("button", name="Add address").click()
    expect(page.get_by_role("status").first).to_contain_text("Open the link in the mail")
    page.goto(next_link(server, mails))
    page.get_by_role("button", name="Confirm this address").click()
    expect(page.get_by_text("emil@example.org is verified.")).to_be_visible()
    sign_out(page)
    page.goto("/app/sign-in")
    page.get_by_role("link", name="Forgot your password?").click()
    page.get_by_label("E-mail address").fill("emil@example.org")
    page.get_by_role("button", name="Send a link").click()
    expect(page.get_by_text("a mail is on its way")).to_be_visible()
    page.goto(next_link(server, mails))
    page.get_by_label("New password").fill("another horse battery")
    page.get_by_role("button", name="Change password").click()
    expect(page.get_by_text("Your password is changed")).to_be_visible()
    page.locator("#main").get_by_role("link", name="Sign in").click()
    page.get_by_label("Username").fill("emil")
    page.get_by_label("Password").fill("another horse battery")
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.wait_for_url(f"{window.url}/app")


def test_the_pages_are_accessible_and_fit_every_screen(window: BrowserWindow) -> None:
    authenticator(window)
    page = window.sign_up("vera")
    page.goto("/app/security")
    page.locator("#totp-password").fill(PASSWORD)
    page.get_by_role("button", name="Set up one-time codes").click()
    found = {"security-codes": look_at(page, "security-codes")}
    add_passkey(page)
    found["security"] = look_at(page, "security")
    sign_out(page)
    for name in ("reset-password?token=0123456789abcdefghij", "verify-email?token=x"):
        page.goto(f"/app/{name}")
        found[name] = look_at(page, name.partition("?")[0])
    assert {name: violated for name, violated in found.items() if violated} == {}
