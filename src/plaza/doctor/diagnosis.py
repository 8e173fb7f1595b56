"""Runs all checks. A check that fails unexpectedly is a line of the report, and stops no other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from plaza.core.errors import OperatorError
from plaza.core.settings import Settings
from plaza.doctor import machine
from plaza.doctor.check import CheckResult, wrong
from plaza.doctor.services import check_mail, check_media, check_sign_in, check_tracing
from plaza.doctor.settings import check_extras, check_settings, invalid_settings
from plaza.doctor.sql import check_sql
from plaza.doctor.valkey import check_valkey

# Longer than a service takes that answers at all.
MAX_SECONDS: Final = 15.0

Results = CheckResult | Sequence[CheckResult] | None


async def diagnose(environ: Mapping[str, str]) -> list[CheckResult]:
    """Return the results of all checks, for the settings of an environment. Writes and creates nothing."""
    try:
        settings = Settings.from_env(environ)
    except OperatorError as error:
        return [invalid_settings(error)]
    results = [machine.check_versions(), check_settings(settings, environ)]
    results += check_locally(settings)
    data_dir = settings.data_dir.absolute()
    remote: dict[str, Awaitable[Results]] = {
        "valkey": check_valkey(settings, data_dir),
        "sql": check_sql(settings, data_dir),
        "mail": check_mail(settings, data_dir),
        "media store": check_media(settings, data_dir),
        "sign-in": check_sign_in(settings),
        "tracing": check_tracing(settings),
    }
    for found in await asyncio.gather(*(_guarded(name, check) for name, check in remote.items())):
        results += found
    return results


def check_locally(settings: Settings) -> list[CheckResult]:
    """Run the checks of this machine."""
    data_dir = settings.data_dir.absolute()
    found = machine.check_data_dir(data_dir)
    checks: dict[str, Callable[[], CheckResult]] = {
        "extras": lambda: check_extras(settings),
        "permissions": lambda: machine.check_permissions(data_dir),
        "secrets": lambda: machine.check_secrets(settings, data_dir),
        "disk": lambda: machine.check_disk(data_dir),
        "clock": lambda: machine.check_clock(data_dir),
        "server": lambda: machine.check_server(settings, data_dir),
    }
    if not settings.valkey_url:
        checks["memory limit"] = lambda: machine.check_memory(settings)
    if not data_dir.is_dir():
        checks = {name: checks[name] for name in ("extras", "memory limit") if name in checks}
    results = [found]
    for name, check in checks.items():
        try:
            results.append(check())
        except OSError as error:
            results.append(_failed(name, error))
    return results


async def _guarded(name: str, check: Awaitable[Results]) -> list[CheckResult]:
    try:
        async with asyncio.timeout(MAX_SECONDS):
            found = await check
    except TimeoutError:
        return [wrong(name, f"No response in {MAX_SECONDS:g} s.", "Check the network and the service.")]
    except OSError as error:
        return [_failed(name, error)]
    if found is None:
        return []
    return [found] if isinstance(found, CheckResult) else list(found)


def _failed(name: str, error: OSError) -> CheckResult:
    file = f"{error.filename}: " if error.filename else ""
    return wrong(name, f"Not checked: {file}{error.strerror or error}.", "Run this as the user of the server.")
