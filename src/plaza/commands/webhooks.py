"""`plaza webhooks …`: endpoints that receive events."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from plaza.commands.base import SEE_HELP, add_command, with_plaza, with_plaza_logged

if TYPE_CHECKING:
    from plaza.commands.base import Commands
    from plaza.webhooks.model import NewWebhook, Webhook


def add_commands(commands: Commands) -> None:
    about = "Manage webhooks, which send events to other services."
    webhooks = commands.add_parser("webhooks", help=about, description=about, epilog=SEE_HELP)
    subcommands = webhooks.add_subparsers(title="commands", required=True, metavar="COMMAND")
    add = add_command(
        subcommands,
        "add",
        _add,
        "Create a webhook and print its id and its secret, which is shown this once.",
        "plaza webhooks add https://example.org/hook --types 'post.*,order.placed'",
    )
    add.add_argument("url", metavar="URL")
    add.add_argument("--types", default="*", help="event types or patterns, separated by commas; default: all")
    add.add_argument("--description", default="", help="a note for operators")
    add.add_argument("--include-imports", action="store_true", help="also send what an import brings in")
    add_command(subcommands, "list", _list, "List webhooks with their state.", "plaza webhooks list")
    actions = (
        ("test", _test, "Send a test event and print the response. Exit status 1 if it was not delivered."),
        ("rotate", _rotate, "Replace the secret and print the new one. The old one works for 24 hours."),
        ("remove", _remove, "Delete a webhook and the events that wait for it."),
    )
    for name, run, summary in actions:
        action = add_command(subcommands, name, run, summary, f"plaza webhooks {name} 5f0cb1e59a4d2c37")
        action.add_argument("id", metavar="ID")


def _add(given: argparse.Namespace) -> int:
    from plaza.webhooks.endpoints import Webhooks

    new = _new_webhook(given)
    created = with_plaza_logged(lambda plaza: plaza.get(Webhooks).create("@cli", new), "webhooks add", given.types)
    print(created.id, created.secret, sep="\n")
    return 0


def _new_webhook(given: argparse.Namespace) -> NewWebhook:
    """Check the arguments as the route checks its body."""
    import msgspec

    from plaza.core.http.problem_details import invalid_from_msgspec
    from plaza.webhooks.model import NewWebhook

    types = [part.strip() for part in given.types.split(",") if part.strip()]
    fields = {"url": given.url, "types": types, "description": given.description}
    try:
        return msgspec.convert({**fields, "include_imports": given.include_imports}, NewWebhook)
    except msgspec.ValidationError as error:
        raise invalid_from_msgspec(error) from None


def _list(given: argparse.Namespace) -> int:
    from plaza.webhooks.endpoints import Webhooks

    for webhook in with_plaza(lambda plaza: plaza.get(Webhooks).list_all()):
        print(*_columns(webhook), sep="  ")
    return 0


def _columns(webhook: Webhook) -> list[str]:
    counts = f"{webhook.delivered} delivered, {webhook.waiting} waiting, {webhook.dropped} dropped"
    reason = webhook.disabled_reason or webhook.last_error
    return [webhook.id, webhook.state, webhook.url, ",".join(webhook.types), counts, *([reason] if reason else [])]


def _test(given: argparse.Namespace) -> int:
    from plaza.webhooks.deliveries import Deliveries

    result = with_plaza_logged(lambda plaza: plaza.get(Deliveries).test(given.id), "webhooks test", given.id)
    print(f"{result.error or f'Delivered: HTTP {result.response_code}'} ({result.duration_ms} ms)")
    return 0 if result.delivered else 1


def _rotate(given: argparse.Namespace) -> int:
    from plaza.webhooks.endpoints import Webhooks

    rotated = with_plaza_logged(lambda plaza: plaza.get(Webhooks).rotate(given.id), "webhooks rotate", given.id)
    print(rotated.secret)
    return 0


def _remove(given: argparse.Namespace) -> int:
    from plaza.webhooks.endpoints import Webhooks

    with_plaza_logged(lambda plaza: plaza.get(Webhooks).remove(given.id), "webhooks remove", given.id)
    print(f"The webhook {given.id} is removed.")
    return 0
