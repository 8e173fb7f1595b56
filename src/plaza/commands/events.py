"""`plaza events tail`: print events as they happen."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from plaza.commands.base import SEE_HELP, add_command, with_plaza

if TYPE_CHECKING:
    from plaza.app import Plaza
    from plaza.commands.base import Commands


def add_commands(commands: Commands) -> None:
    about = "Watch events."
    events = commands.add_parser("events", help=about, description=about, epilog=SEE_HELP)
    subcommands = events.add_subparsers(title="commands", required=True, metavar="COMMAND")
    tail = add_command(
        subcommands,
        "tail",
        _tail,
        "Print events as they happen, one CloudEvent in JSON per line, until Ctrl-C.",
        "plaza events tail --types 'post.*,user.followed'",
    )
    tail.add_argument("--types", default="", help="event types or patterns, separated by commas; default: all")
    tail.add_argument("--subject", help="only events about this subject")
    tail.add_argument("--after", metavar="ID", help="start after this id, such as social-1794921304186-0")
    tail.add_argument("--count", type=int, help="stop after so many events")


def _tail(given: argparse.Namespace) -> int:
    async def tail(plaza: Plaza) -> None:
        from plaza.core.event_routes import EventFeed

        events, printed = await plaza.get(EventFeed).subscribe(given.types, given.subject, given.after), 0
        try:
            async for event in events:
                print(bytes(event.data).decode(), flush=True)
                printed += 1
                if printed == given.count:
                    return
        finally:
            await events.aclose()

    with_plaza(tail)
    return 0
