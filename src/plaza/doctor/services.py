"""Checks the other services that are configured: mail, the store of pictures, the sign-in provider. Sends no mail."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from plaza.core.errors import PlazaError, SettingError, Unavailable
from plaza.core.extras import require_extra
from plaza.core.settings import Settings
from plaza.doctor.check import CheckResult, ok, warning, wrong

HTTP_SECONDS: Final = 5.0


async def check_mail(settings: Settings, data_dir: Path) -> CheckResult:
    """Connect and sign in to the mail server."""
    if not settings.smtp_url:
        folder = data_dir / "mail"
        text = f"No mail server is set: mails are files in {folder}."
        return warning("mail", text, "Set PLAZA_SMTP_URL so that users get them.")
    import aiosmtplib

    from plaza.core.smtp import SmtpServer, connect_smtp

    try:
        server = SmtpServer.from_url(settings.smtp_url)
    except SettingError as error:
        return wrong("mail", str(error), "Correct it.")
    try:
        async with connect_smtp(server):
            return ok("mail", f"{server.host}:{server.port} accepts mails of {server.sender}.")
    except aiosmtplib.SMTPAuthenticationError:
        text = f"{server.host}:{server.port} refused the user or password."
        return wrong("mail", text, "Correct them in PLAZA_SMTP_URL.")
    except (aiosmtplib.SMTPException, OSError, TimeoutError) as error:
        text = f"{server.host}:{server.port} cannot be used: {type(error).__name__}."
        return wrong("mail", text, "Start it, or correct PLAZA_SMTP_URL.")


async def check_media(settings: Settings, data_dir: Path) -> CheckResult:
    """Check the folder of pictures, or list the first files of the bucket."""
    if not settings.media_url:
        folder = data_dir / "media"
        if folder.exists() and not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            return wrong("media store", f"{folder} cannot be written by this user.", f"chmod u+rwx {folder}")
        return ok("media store", f"{folder}." if folder.exists() else f"{folder}; the first start creates it.")
    from plaza.media.object_store import MediaStore

    try:
        async for _ in MediaStore.open(settings).list():
            break
    except SettingError as error:
        return wrong("media store", str(error), "Correct it.")
    except Unavailable as error:
        text = f"The bucket cannot be listed: {type(error.__cause__).__name__}."
        return wrong("media store", text, "Correct PLAZA_MEDIA_URL and the provider's credentials.")
    return ok("media store", "The bucket can be listed.")


async def check_tracing(settings: Settings) -> CheckResult | None:
    """Send no spans to the collector, as a request; None if none is configured."""
    if not settings.otlp_endpoint:
        return None
    try:
        require_extra("otel", "PLAZA_OTLP_ENDPOINT is set.")
    except SettingError as error:
        return wrong("tracing", "PLAZA_OTLP_ENDPOINT is set without its packages.", str(error))
    import httpx2

    from plaza.core.otlp import traces_url

    headers = {"content-type": "application/x-protobuf"}
    try:
        async with httpx2.AsyncClient(timeout=HTTP_SECONDS) as client:
            (await client.post(traces_url(settings.otlp_endpoint), content=b"", headers=headers)).raise_for_status()
    except httpx2.HTTPError as error:
        text = f"{settings.otlp_endpoint} takes no traces: {type(error).__name__}."
        return wrong("tracing", text, "Start the collector, or correct PLAZA_OTLP_ENDPOINT.")
    return ok("tracing", f"{settings.otlp_endpoint} takes traces.")


async def check_sign_in(settings: Settings) -> CheckResult | None:
    """Read the metadata of the OpenID provider; None if none is configured."""
    if not settings.oidc_issuer:
        return None
    from plaza.accounts.openid_client import OpenIdClient

    try:
        await OpenIdClient(settings.oidc_issuer, settings.oidc_client_id, "", str).discover()
    except (SettingError, PlazaError) as error:
        return wrong("sign-in", str(error), "Correct PLAZA_OIDC_ISSUER, or start the provider.")
    return ok("sign-in", f"{settings.oidc_issuer} responds.")
