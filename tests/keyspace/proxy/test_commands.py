"""The table of commands agrees with Valkey's command table and with the guide."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from plaza.keyspace.proxy import encoding, execution, service
from plaza.keyspace.proxy.access_rules import MAX_FIELD_NAME_CHARACTERS
from plaza.keyspace.proxy.commands import (
    COMMANDS,
    CONNECTION_COMMANDS,
    MAX_VALUE_CHARACTERS,
    CommandSpec,
    parse_command,
)
from tests.servers import Server

GUIDE = (Path(__file__).parents[3] / "docs" / "proxy.md").read_text()
ARGUMENTS = {
    "index": "1", "integer": "1", "offset": "1", "limit": "1", "count": "1", "cursor": "0", "score": "1", "bound": "1",
    "lex": "-", "pattern": "*",
}  # fmt: skip


def with_all_arguments(command: CommandSpec) -> list[str]:
    """A command with all its arguments and options, each key different."""
    words = [command.name]
    kinds = [*command.arguments, *command.repeated * 3, *(kind for kinds in command.options.values() for kind in kinds)]
    for i, kind in enumerate([*command.arguments, *command.repeated * 3]):
        words.append(ARGUMENTS.get(kind, f"{kind}{i}"))
    for name, more in command.options.items():
        words += [name, *(ARGUMENTS[kind] for kind in more)]
    assert len(words) == 1 + len(kinds) + len(command.options)
    return words


def test_keys_are_found_where_valkey_finds_them(session_server: Server) -> None:
    with session_server.redis_client() as valkey:
        for command in COMMANDS.values():
            words = with_all_arguments(command)
            if command.name == "ZRANGE":  # its options exclude each other
                words = ["ZRANGE", "key0", "1", "1", "WITHSCORES", "REV", "BYSCORE", "LIMIT", "0", "5"]
            assert parse_command(words).keys == valkey.command_getkeys(*words), words


def test_commands_read_or_write_as_declared(session_server: Server) -> None:
    with session_server.redis_client() as valkey:
        known: dict[str, Any] = valkey.command()
    for name, command in COMMANDS.items():
        flags = set(known[name.lower()]["flags"])
        assert ("write" if command.writes else "readonly") in flags, name
        assert not flags & {"admin", "blocking", "pubsub", "noscript", "movablekeys"}, name


def test_the_guide_names_every_command_and_the_real_limits() -> None:
    listed = GUIDE.partition("## Commands")[2].partition("## Limits")[0]
    assert set(re.findall(r"\b[A-Z]{3,}\b", listed)) == {*COMMANDS, *CONNECTION_COMMANDS}
    text = GUIDE.replace("\n", " ")
    for limit in (
        f"{encoding.MAX_COMMANDS} commands, {encoding.MAX_ARGUMENTS:,} arguments, "
        f"{encoding.MAX_BODY_BYTES // 1024} KiB",
        f"{service.TIMEOUT_SECONDS:g} seconds",
        f"{service.MAX_ELEMENTS:,} elements",
        f"{service.MAX_RESULT_BYTES // 2**20} MiB",
        f"up to {MAX_FIELD_NAME_CHARACTERS} characters",
        f"at most {MAX_VALUE_CHARACTERS:,} characters, "
        f"a profile {execution.MAX_PROFILE_FIELDS} fields and {execution.MAX_PROFILE_BYTES:,} bytes",
    ):
        assert limit in text, limit
