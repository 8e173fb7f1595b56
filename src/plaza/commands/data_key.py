"""`plaza data-key …`: replace the key that encrypts stored values."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from plaza.commands.base import SEE_HELP, add_command, with_plaza_logged
from plaza.core.errors import OperatorError
from plaza.core.settings import Settings, add_data_key

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from plaza.app import Plaza
    from plaza.commands.base import Commands
    from plaza.keyspace.reencryption import ReencryptionReport


def add_commands(commands: Commands) -> None:
    about = "Replace the key that encrypts stored values."
    data_key = commands.add_parser("data-key", help=about, description=about, epilog=SEE_HELP)
    subcommands = data_key.add_subparsers(title="commands", required=True, metavar="COMMAND")
    add_command(
        subcommands,
        "new",
        _new,
        "Add a new key to the file data-key in the data directory. Earlier keys still decrypt. Then restart every "
        "server, and run plaza data-key reencrypt.",
        "plaza data-key new",
    )
    reencrypt = add_command(
        subcommands,
        "reencrypt",
        _reencrypt,
        "Encrypt every stored value with the present key, also while a server runs. Exit status 1 if a value cannot be "
        "decrypted; otherwise earlier keys can be removed.",
        "plaza data-key reencrypt",
    )
    reencrypt.add_argument(
        "--plain", action="store_true", help="also encrypt profile fields that other services wrote in plain text"
    )


def _new(given: argparse.Namespace) -> int:
    settings = Settings.from_env()
    if settings.data_key:
        raise OperatorError("PLAZA_DATA_KEY is set. Put its value into PLAZA_DATA_KEY_OLD and set a new one instead.")
    if not settings.data_key_file.exists():
        raise OperatorError(f"{settings.data_key_file} does not exist. Check PLAZA_DATA_DIR.")
    add_data_key(settings.data_key_file)
    print("A new key is added. Restart every server, then run plaza data-key reencrypt.")
    return 0


def _reencrypt(given: argparse.Namespace) -> int:
    from plaza.keyspace.reencryption import Reencryption

    def run(plaza: Plaza) -> Awaitable[ReencryptionReport]:
        return plaza.get(Reencryption).run(plain_too=given.plain)

    report = with_plaza_logged(run, "data-key reencrypt", detail="plain too" if given.plain else "")
    print(f"{report.encrypted} values were encrypted with the present key; {report.unreadable} cannot be decrypted.")
    return 1 if report.unreadable else 0
