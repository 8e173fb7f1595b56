"""`plaza token`, `plaza users …`, `plaza import` and `plaza export`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Final, cast

from plaza.commands.base import SEE_HELP, add_command, with_plaza_logged
from plaza.commands.progress_line import ProgressLine
from plaza.core.errors import Invalid, NotFound, OperatorError
from plaza.core.roles import ROLES, Role

if TYPE_CHECKING:
    from plaza.app import Plaza
    from plaza.commands.base import Commands
    from plaza.social.jsonl_import import BadLine

# The domains of accounts, credentials and roles.
_ACCOUNTS: Final = ("accounts", "social")


def add_commands(commands: Commands) -> None:
    token = add_command(
        commands, "token", _token, "Print an access token for a username, valid for 15 minutes.", "plaza token ana"
    )
    token.add_argument("username", metavar="USERNAME")
    token.add_argument("--role", choices=ROLES, help="default: the role of that user, or user if there is none")
    _add_users(commands)
    load = add_command(
        commands,
        "import",
        _import,
        "Import users, posts and other records of another system, or a file of plaza export, one JSON object per line: "
        "docs/export.md lists the types. If it is interrupted, run it again to continue; importing a file twice "
        "changes nothing.",
        "plaza import community.jsonl",
    )
    load.add_argument("file", metavar="FILE.jsonl")
    export = add_command(
        commands,
        "export",
        _export,
        "Write a whole community to a file, one JSON object per line, which plaza import reads into another Plaza. "
        "For a copy of everything use plaza backup.",
        "plaza export community.jsonl",
    )
    export.add_argument("file", metavar="FILE.jsonl")
    export.add_argument(
        "--private",
        action="store_true",
        help="also private profile fields and password hashes: keep the file secret",
    )
    export.add_argument("--no-pictures", action="store_true", help="without pictures, which make the file large")


def _add_users(commands: Commands) -> None:
    users = commands.add_parser("users", help="Manage users.", description="Manage users.", epilog=SEE_HELP)
    subcommands = users.add_subparsers(title="commands", required=True, metavar="COMMAND")
    role = add_command(
        subcommands,
        "role",
        _users_role,
        "Set the role of a registered user. Use it to create the first admin.",
        "plaza users role ana admin",
    )
    role.add_argument("name", metavar="NAME")
    role.add_argument("role", metavar="ROLE", choices=ROLES, help=", ".join(ROLES))
    password = add_command(
        subcommands,
        "password",
        _users_password,
        "Set the password of an account, from a prompt or from stdin. All its sessions end.",
        "plaza users password ana",
    )
    password.add_argument("name", metavar="NAME")
    rename = add_command(
        subcommands,
        "rename",
        _users_rename,
        "Rename a user in every key, member, field and SQL row. Tokens of the old name are void at once. If it is "
        "interrupted, a worker continues, or run it again.",
        "plaza users rename ana anna",
    )
    rename.add_argument("old", metavar="OLD")
    rename.add_argument("new", metavar="NEW")


def _token(given: argparse.Namespace) -> int:
    from plaza.core.tokens import is_username

    if not is_username(given.username):
        raise Invalid("must be 1 to 30 of A-Z a-z 0-9 . _ - and not me or AUTH", field="username")

    async def issue(plaza: Plaza) -> str:
        role: Role = given.role or await _role_of(plaza, given.username)
        return plaza.core.auth.issue(given.username, role)

    detail = f"role={given.role}" if given.role else ""
    print(with_plaza_logged(issue, "token", given.username, detail, domains=_ACCOUNTS))
    return 0


async def _role_of(plaza: Plaza, name: str) -> Role:
    from plaza.social.users import Users

    try:
        return cast(Role, (await plaza.get(Users).get(None, name)).role)
    except NotFound:
        return "user"  # a token works without a profile for reading and voting


def _users_role(given: argparse.Namespace) -> int:
    from plaza.core.auth import API
    from plaza.social.users import Users

    detail = f"role={given.role}"
    user = with_plaza_logged(
        lambda plaza: plaza.get(Users).set_role(API, given.name, given.role),
        "users role",
        given.name,
        detail,
        domains=_ACCOUNTS,
    )
    print(f"{user.username} is now {user.role}. Access tokens issued before are void.")
    return 0


def _users_password(given: argparse.Namespace) -> int:
    from plaza.social.password_changes import PasswordChanges

    password = _ask_password()
    with_plaza_logged(lambda plaza: plaza.get(PasswordChanges).set(given.name, password), "users password", given.name)
    print(f"{given.name} has a new password and is signed out everywhere.")
    return 0


def _users_rename(given: argparse.Namespace) -> int:
    from plaza.social.account_renaming import AccountRenaming

    moved = with_plaza_logged(
        lambda plaza: plaza.get(AccountRenaming).rename(given.old, given.new), "users rename", given.old
    )
    print(f"{given.old} is now {given.new}. {moved:,} posts, comments, likes and relations were moved.")
    return 0


def _ask_password() -> str:
    """A password from a hidden prompt, or the first line of stdin if that is not a terminal."""
    from getpass import getpass

    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    first, second = getpass("New password: "), getpass("Again: ")
    if first != second:
        raise OperatorError("The passwords differ. Try again.")
    return first


def _import(given: argparse.Namespace) -> int:
    from pathlib import Path

    from plaza.community.transfer import community_parts, complete_import
    from plaza.social.jsonl_import import ImportProgress, JsonlImporter

    path = Path(given.file)
    if not path.is_file():
        raise OperatorError(f"{path} is not a file.")
    with ProgressLine() as line:
        step, size = f"{path.name}, bytes", path.stat().st_size

        def report(bad: BadLine) -> None:
            line.print(str(bad))

        async def run(plaza: Plaza) -> ImportProgress:
            importer = JsonlImporter(plaza.core.valkey, community_parts(plaza), report)
            progress = await importer.run(path, lambda offset: line.show(step, offset, size))
            await complete_import(plaza, progress.kinds)
            return progress

        done = with_plaza_logged(run, "import", path.name)
    counts = ", ".join(f"{done.counts[status]} {status}" for status in ("created", "updated", "unchanged"))
    print(f"{counts}, {done.counts['error']} skipped.")
    return 1 if done.counts["error"] else 0


def _export(given: argparse.Namespace) -> int:
    from pathlib import Path

    from plaza.community.transfer import Exported, community_parts, export_community

    path = Path(given.file)
    if not path.parent.is_dir():
        raise OperatorError(f"{path.parent} is not a directory.")
    if path.is_symlink() or (path.exists() and not path.is_file()):  # it would be replaced, also /dev/stdout
        raise OperatorError(f"{path} is a directory, a link or a device. Give the name of a file.")
    with ProgressLine() as line:

        async def run(plaza: Plaza) -> Exported:
            parts = community_parts(plaza, private=given.private, pictures=not given.no_pictures)
            return await export_community(parts, path, line.show)

        done = with_plaza_logged(run, "export", path.name, "private" if given.private else "")
    print(", ".join(f"{count:,} {kind}" for kind, count in done.counts.items()) or "nothing")
    if done.left_out:
        print(f"{done.left_out:,} left out: what they name came too late, was renamed or is gone.")
    if given.private:
        print(f"{path} contains private data and password hashes. Keep it secret.", file=sys.stderr)
    return 0
