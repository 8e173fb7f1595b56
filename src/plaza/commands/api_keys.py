"""`plaza api-keys …`: keys for other services."""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

from plaza.commands.base import SEE_HELP, add_command, with_plaza_logged, with_valkey
from plaza.core.errors import OperatorError

if TYPE_CHECKING:
    from plaza.app import Plaza
    from plaza.commands.base import Commands
    from plaza.core.api_keys import ApiKeys, Scope


def add_commands(commands: Commands) -> None:
    about = "Manage API keys for other services."
    keys = commands.add_parser("api-keys", help=about, description=about, epilog=SEE_HELP)
    subcommands = keys.add_subparsers(title="commands", required=True, metavar="COMMAND")
    create = add_command(
        subcommands,
        "create",
        _create,
        "Create an API key and print it once. Scopes: sync (send data to /sync), events (read the event stream), read "
        "(read what an admin may read), admin (everything).",
        "plaza api-keys create billing --scope sync,read --expires 90d",
    )
    create.add_argument("name", metavar="NAME")
    create.add_argument("--scope", required=True, metavar="SCOPES", help="one or more, separated by commas")
    create.add_argument("--expires", metavar="DAYS", help="such as 90d; default: never")
    listed = "List API keys with their scopes, expiry and last use."
    add_command(subcommands, "list", _list, listed, "plaza api-keys list")
    revoke = add_command(
        subcommands,
        "revoke",
        _revoke,
        "Revoke an API key. Every process refuses it at once.",
        "plaza api-keys revoke billing",
    )
    revoke.add_argument("name", metavar="NAME")


def _create(given: argparse.Namespace) -> int:
    scopes = tuple(part.strip() for part in given.scope.split(",") if part.strip())
    days = _days(given.expires)

    async def create(plaza: Plaza) -> str:
        secret = await _keys(plaza).create(given.name, cast("tuple[Scope, ...]", scopes), days)
        await _tell_admins(plaza)
        return secret

    detail = f"scopes={','.join(scopes)} expires={given.expires or 'never'}"
    print(with_plaza_logged(create, "api-keys create", given.name, detail, domains=["accounts", "social"]))
    return 0


def _list(given: argparse.Namespace) -> int:
    from plaza.core.api_keys import ApiKeys
    from plaza.core.clock import Clock

    for key in with_valkey(lambda valkey: ApiKeys(valkey, Clock()).list_all()):
        expires = "never expires" if key.expires_at is None else f"expires {_date(key.expires_at)}"
        used = "never used" if key.last_used_at is None else f"last used {_hour(key.last_used_at)}"
        print(f"{key.name}  {','.join(key.scopes)}  created {_date(key.created_at)}  {expires}  {used}")
    return 0


def _revoke(given: argparse.Namespace) -> int:
    with_plaza_logged(
        lambda plaza: _keys(plaza).revoke(given.name), "api-keys revoke", given.name, domains=["accounts"]
    )
    print(f"The API key {given.name} is revoked.")
    return 0


async def _tell_admins(plaza: Plaza) -> None:
    """Ask for a mail to every admin with a verified address."""
    from plaza.accounts.security_notices import API_KEY_CREATED, MailedNotices
    from plaza.social.credentials import Credentials

    notices, credentials = plaza.get(MailedNotices), plaza.get(Credentials)
    for username in await notices.users_with_address():
        actor = await credentials.actor(username)
        if actor is not None and actor.is_admin:
            await notices.notify(username, API_KEY_CREATED, None)


def _keys(plaza: Plaza) -> ApiKeys:
    keys = plaza.core.auth.api_keys
    assert keys is not None
    return keys


def _days(text: str | None) -> int | None:
    if text is None:
        return None
    if not re.fullmatch(r"[1-9]\d{0,3}d", text):
        raise OperatorError("--expires must be a number of days such as 90d.")
    return int(text[:-1])


def _date(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d")


def _hour(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:00 UTC")
