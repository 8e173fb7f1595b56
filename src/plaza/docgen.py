"""The pages of `docs/` that are made from the code, so that they cannot be wrong: `make docs` writes them.

A test compares each with its file. A setting, command, route, metric or key that is added without `make docs` fails it,
and so does a route without a line that says what it is for.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from plaza.app import catalogues, route_groups
from plaza.cli import parser
from plaza.core import metrics
from plaza.core.http.routes import Route, Routes
from plaza.core.settings import Settings, variable
from plaza.keyspace import catalogue_docs as keys

MADE = "Made from the code by `make docs`; a test fails when it is stale.\n"


def pages() -> dict[str, str]:
    """Every page that is made, by its file name."""
    return {
        "settings.md": settings_page(),
        "commands.md": commands_page(parser()),
        "routes.md": routes_page(route_groups()),
        "metrics.md": metrics.markdown(),
        "keys.md": keys.markdown(catalogues()),
    }


def settings_page() -> str:
    lines = [
        "# Settings\n",
        MADE,
        "All settings are environment variables, read once at start. A value that cannot be is refused with its name,",
        "and Plaza does not start. An empty variable counts as not set.\n",
        "| variable | default | meaning |",
        "|---|---|---|",
    ]
    for field in fields(Settings):
        assert field.default is not MISSING
        lines.append(f"| `{variable(field.name)}` | {_default(field.default)} | {field.metadata['help']} |")
    return "\n".join(lines) + "\n"


def _default(value: Any) -> str:
    if value is None or value in ("", ()):
        return "none"
    if isinstance(value, bool):
        return "`on`" if value else "`off`"
    return f"`{value}`"


def commands_page(top: argparse.ArgumentParser) -> str:
    lines = [
        "# Commands\n",
        MADE,
        "What an operator can put right is said in one line on stderr, with exit status 2: a setting, a taken port, a",
        "directory in use. Status 1: the command ran and could not do it. Status 0: done.\n",
    ]
    for name, command in all_commands(top.prog, top):
        options = [action for action in command._actions if not isinstance(action, argparse._HelpAction)]
        lines += [f"## `{' '.join([name, *map(_shape, options)])}`\n", f"{command.description}\n"]
        explained = [f"- `{_shape(action).strip('[]')}`: {action.help}." for action in options if action.help]
        lines += [*explained, ""] if explained else []
        lines.append(f"```sh\n{_example(command)}\n```\n")
    return "\n".join(lines)


def all_commands(name: str, top: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The commands that can be run, with their whole names."""
    below = [action for action in top._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        yield name, top
    for action in below:
        for word, command in action.choices.items():
            yield from all_commands(f"{name} {word}", command)


def _shape(action: argparse.Action) -> str:
    if not action.option_strings:
        return str(action.metavar or action.dest.upper())
    option = action.option_strings[-1]
    return f"[{option}]" if action.nargs == 0 else f"[{option} {action.metavar or action.dest.upper()}]"


def _example(command: argparse.ArgumentParser) -> str:
    return (command.epilog or "").partition("example:\n  ")[2]


def routes_page(groups: Sequence[Routes]) -> str:
    lines = [
        "# Routes\n",
        MADE,
        "`GET /openapi.json` has every parameter and answer, and `GET /docs` shows them in a browser, also offline.\n",
    ]
    for tag in dict.fromkeys(group.tag for group in groups):
        lines += [f"## {tag}\n", "| route | who | |", "|---|---|---|"]
        routes = [route for group in groups if group.tag == tag for route in group.routes]
        lines += [f"| `{r.method} {r.template}` | {r.access.value} | {_about(r)} |" for r in routes]
        lines.append("")
    return "\n".join(lines)


def _about(route: Route) -> str:
    text = (route.handler.__doc__ or "").strip().split("\n\n")[0]
    assert text, f"{route.method} {route.template} does not say what it is for"
    return " ".join(text.split())


def write(folder: Path) -> None:
    for name, text in pages().items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
