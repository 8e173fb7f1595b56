"""Checks the settings: values that a start would refuse, and variables that no setting reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches

from plaza.core.errors import OperatorError
from plaza.core.extras import PACKAGES, is_installed, require_extra
from plaza.core.http.trusted_proxies import TrustedProxies
from plaza.core.settings import Settings, variable
from plaza.doctor.check import CheckResult, ok, warning, wrong
from plaza.own_domains import only_own_domains

NAME = "settings"


def invalid_settings(error: OperatorError) -> CheckResult:
    """The result for settings that cannot be read. Nothing else can be checked then."""
    return wrong(NAME, str(error), "Correct it, then run plaza doctor again. docs/settings.md lists the settings.")


def check_settings(settings: Settings, environ: Mapping[str, str]) -> CheckResult:
    """Check what `Settings` leaves to the parts of Plaza, and look for misspelt variables."""
    try:
        if not only_own_domains(settings):
            from plaza.app import configured_domains

            configured_domains(settings)
        TrustedProxies(settings.trusted_proxies)
        if settings.jwt_public_key is not None:
            from plaza.core.issuer_key import read_public_key

            read_public_key(settings.jwt_public_key)
        if settings.database_url:
            require_extra("postgres", "PLAZA_DATABASE_URL is the address of a PostgreSQL database.")
    except OperatorError as error:
        return invalid_settings(error)
    names = sorted(variable(field.name) for field in fields(Settings))
    unknown = sorted(name for name in environ if name.startswith("PLAZA_") and name not in names)
    if unknown:
        return warning(NAME, f"No setting is called {', '.join(unknown)}.", _spelling(unknown[0], names))
    doubts = settings.warnings()
    if doubts:
        return warning(NAME, doubts[0], "Set a longer one.")
    given = sum(name in environ for name in names)
    return ok(NAME, f"{given} set by PLAZA_ variables, the others have their defaults.")


def _spelling(unknown: str, names: list[str]) -> str:
    close = get_close_matches(unknown, names, n=1)
    return f"Did you mean {close[0]}?" if close else "Remove it. docs/settings.md lists the settings."


def check_extras(settings: Settings) -> CheckResult:
    """Say which optional parts are installed."""
    installed = [extra for extra in PACKAGES if is_installed(extra)]
    if "media" not in installed:
        return warning("extras", "Uploads of pictures are refused.", "pip install 'plaza[media]' enables them.")
    return ok("extras", f"{', '.join(installed)} installed.")
