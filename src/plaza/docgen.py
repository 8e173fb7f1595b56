"""Generates what comes from the code: the pages of `docs/` (`make docs`), and the OpenAPI document (`make sdk`).

    python -m plaza.docgen docs            # writes the pages into docs/
    python -m plaza.docgen openapi.json    # writes the OpenAPI document

A test compares each page with its file, so a new setting, command, route, metric, key or event fails the test until
`make docs` is run. So does a route without a summary.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from plaza import __version__, event_docs, monitoring
from plaza.app import catalogues, event_types
from plaza.cli import parser
from plaza.core import metrics
from plaza.core.http.access import ADMIN, USER
from plaza.core.http.openapi.document import describe_routes
from plaza.core.http.responses import encode
from plaza.core.http.routes import Route, Routes
from plaza.core.settings import Settings, variable
from plaza.http_application import route_groups
from plaza.keyspace import catalogue_docs as keys

GENERATED = "`make docs` generates this page from the code; a test fails when it is out of date.\n"


def pages() -> dict[str, str]:
    """The text of every generated page, by file name."""
    return {
        "settings.md": settings_page(),
        "commands.md": commands_page(parser()),
        "routes.md": routes_page(route_groups()),
        "metrics.md": metrics.markdown(),
        "keys.md": keys.markdown(catalogues()),
        "events.md": event_docs.page(event_types(), GENERATED),
        "monitoring.md": monitoring.page(GENERATED),
        monitoring.ALERTS_FILE: monitoring.alert_rules(),
        monitoring.DASHBOARD_FILE: monitoring.dashboard(),
    }


def settings_page() -> str:
    lines = [
        "# Settings\n",
        GENERATED,
        "All settings are environment variables, read once at start. Invalid values stop the start, with the setting's",
        "name. An empty variable counts as not set.\n",
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
        GENERATED,
        "Exit status 0: success. 1: the command ran and failed. 2: the operator must fix something first, such as a",
        "setting, a port in use or a directory in use; one line on stderr says what.\n",
    ]
    for name, command in all_commands(top.prog, top):
        options = [action for action in command._actions if not isinstance(action, argparse._HelpAction)]
        lines += [f"## `{' '.join([name, *map(_usage, options)])}`\n", f"{command.description}\n"]
        described = [f"- `{_usage(action).strip('[]')}`: {action.help}." for action in options if action.help]
        lines += [*described, ""] if described else []
        lines.append(f"```sh\n{_example(command)}\n```\n")
    return "\n".join(lines)


def all_commands(name: str, top: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The commands that can be run, by their full names."""
    subparsers = [action for action in top._actions if isinstance(action, argparse._SubParsersAction)]
    if not subparsers:
        yield name, top
    for action in subparsers:
        for subname, command in action.choices.items():
            yield from all_commands(f"{name} {subname}", command)


def _usage(action: argparse.Action) -> str:
    if not action.option_strings:
        return str(action.metavar or action.dest.upper())
    option = action.option_strings[-1]
    return f"[{option}]" if action.nargs == 0 else f"[{option} {action.metavar or action.dest.upper()}]"


def _example(command: argparse.ArgumentParser) -> str:
    return (command.epilog or "").partition("example:\n  ")[2]


def routes_page(groups: Sequence[Routes]) -> str:
    lines = [
        "# Routes\n",
        GENERATED,
        "`GET /openapi.json` has every parameter and response. `GET /docs` shows them in a browser, also offline.\n",
    ]
    for tag in dict.fromkeys(group.tag for group in groups):
        lines += [f"## {tag}\n", "| route | access | summary |", "|---|---|---|"]
        routes = [route for group in groups if group.tag == tag for route in group.routes]
        lines += [f"| `{r.method} {r.template}` | {_access(r)} | {_summary(r)} |" for r in routes]
        lines.append("")
    return "\n".join(lines)


def _access(route: Route) -> str:
    """Pages and forms take session cookies only, so an API key does not open them."""
    if route.by_cookie and route.access in (USER, ADMIN):
        return f"signed-in {route.access.name.lower()}"
    return route.access.value


def _summary(route: Route) -> str:
    text = (route.handler.__doc__ or "").strip().split("\n\n")[0]
    assert text, f"{route.method} {route.template} has no summary"
    return " ".join(text.split())


def openapi_document() -> dict[str, Any]:
    """The OpenAPI document of all of Plaza, as `GET /openapi.json` returns it. Needs no server."""
    return describe_routes(route_groups(), __version__)


def write(target: Path) -> None:
    """Write all generated pages into a folder, or the OpenAPI document into a file."""
    if target.suffix == ".json":
        target.write_bytes(encode(openapi_document()))
        return
    for name, text in pages().items():
        (target / name).parent.mkdir(exist_ok=True)
        (target / name).write_text(text)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
