"""How accounts plug in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plaza.accounts import jobs, routes, routes_openid, routes_passkeys
from plaza.accounts.email_links import Emails, MailJob
from plaza.accounts.library import LIBRARY
from plaza.accounts.openid import OpenIdSignIn
from plaza.accounts.passkey_challenges import PasskeyChallenges
from plaza.accounts.passkeys import Passkeys
from plaza.accounts.personal_data import PERSONAL_KEYS, AccountsPersonalData
from plaza.accounts.relying_party import RelyingParty
from plaza.accounts.second_factor import SecondFactors
from plaza.accounts.second_factor_check import SecondFactorCheck
from plaza.accounts.security_log import SqlSecurityLog
from plaza.accounts.security_notices import MailedNotices, NoticeMails
from plaza.accounts.sessions import AccountSessions
from plaza.accounts.sign_in_proof import SignInProof
from plaza.core.admin_mfa import AdminMfa
from plaza.core.domain import Core, Domain, Parts, Provided
from plaza.core.encryption import Encryption
from plaza.core.errors import SettingError
from plaza.core.events import Events
from plaza.core.mail import open_mailer
from plaza.core.root_path import public_url
from plaza.core.security_log import AccountLog
from plaza.core.settings import Settings

if TYPE_CHECKING:
    from plaza.accounts.openid_client import OpenIdClient


def build(core: Core) -> Parts:
    """Build second factors, which signing in needs. What needs passwords and sessions is built last."""
    second_factors = SecondFactors(core.functions, Encryption(core.settings.data_keys()), core.clock)
    log = SqlSecurityLog(core.sql, core.clock, core.settings.account_address)
    notices = MailedNotices(core.valkey, Events(core.functions), core.clock, core.settings.account_address)
    account_log = AccountLog(log, notices)
    challenges = PasskeyChallenges(core.valkey, core.settings.secret("jwt_secret"), core.clock)
    passkeys = Passkeys(core.functions, challenges, RelyingParty.from_settings(core.settings), core.clock)
    check = SecondFactorCheck(core.valkey, second_factors, passkeys)
    admin_mfa = AdminMfa(check.is_set_up if core.settings.require_admin_mfa else None)
    return Parts(
        [second_factors, passkeys, admin_mfa, log, account_log, notices],
        Provided(second_factor=check, account_log=account_log),
        timers=jobs.timers(log),
        personal_data=AccountsPersonalData(core.valkey, second_factors, passkeys, log),
        personal_keys=PERSONAL_KEYS,
        encrypted=[second_factors.encrypted_fields()],
        on_close=[account_log.close],
        build_last=lambda provided: _build_last(core, log, account_log, provided),
    )


def _build_last(core: Core, security_log: SqlSecurityLog, log: AccountLog, provided: Provided) -> Parts:
    if provided.passwords is None or provided.second_factor is None:
        return Parts([])  # without the domain that stores passwords there is nothing to reset
    settings, events = core.settings, Events(core.functions)
    emails = Emails(
        core.valkey, events, provided.passwords, provided.sessions, core.auth, core.limiter, core.clock, log
    )
    mailer = open_mailer(settings.smtp_url, settings.data_dir)
    url = public_url(settings)
    mail = MailJob(emails, NoticeMails(security_log, url), mailer, url)
    proof = SignInProof(provided.passwords, provided.second_factor, core.clock)
    openid = OpenIdSignIn(core.valkey, _openid_client(settings), provided.passwords)
    stores = [store for store in (provided.api_sessions, provided.sessions) if store is not None]
    sessions = AccountSessions(stores, log)
    return Parts([emails, proof, openid, sessions], consumers=jobs.consumers(mail))


def _openid_client(settings: Settings) -> OpenIdClient | None:
    if not settings.oidc_issuer:
        return None
    if not (settings.oidc_client_id and settings.oidc_client_secret):
        raise SettingError("PLAZA_OIDC_ISSUER needs PLAZA_OIDC_CLIENT_ID and PLAZA_OIDC_CLIENT_SECRET.")
    from plaza.accounts.openid_client import OpenIdClient  # 170 ms of CPU that a start without a provider saves

    return OpenIdClient(
        settings.oidc_issuer,
        settings.oidc_client_id,
        settings.oidc_client_secret,
        lambda: f"{public_url(settings)}/auth/oidc/callback",
    )


DOMAIN = Domain(LIBRARY, [routes.route, routes_passkeys.route, routes_openid.route], build)
