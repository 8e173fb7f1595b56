"""`plaza new …`: packages that add something to Plaza."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from plaza.commands.base import SEE_HELP, add_command

if TYPE_CHECKING:
    from plaza.commands.base import Commands


def add_commands(commands: Commands) -> None:
    about = "Write a package that adds something to Plaza."
    new = commands.add_parser("new", help=about, description=about, epilog=SEE_HELP)
    subcommands = new.add_subparsers(title="commands", required=True, metavar="COMMAND")
    summary = "Write a package with a domain of your own: keys, Lua, service, routes, personal data and tests."
    domain = add_command(subcommands, "domain", _domain, summary, "plaza new domain polls")
    domain.add_argument("name", metavar="NAME", help="its name and folder: letters and digits in lower case")


def _domain(given: argparse.Namespace) -> int:
    from plaza.new_domain import write_domain
    from plaza.own_domains import OWN_DOMAINS

    folder = Path(given.name)
    for path in write_domain(given.name, folder, set(OWN_DOMAINS)):
        print(path)
    print(f"\nInstall it, then Plaza runs it:  pip install --editable ./{folder}\nTest it:  pytest {folder}")
    return 0
