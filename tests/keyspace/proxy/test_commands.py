"""The table of commands, held against Valkey's own and against the guide."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from plaza.keyspace.proxy import encoding, execution, service
from plaza.keyspace.proxy.access_rules import LONGEST_CUSTOM
from plaza.keyspace.proxy.commands import COMMANDS, GREETINGS, LONGEST_VALUE, CommandSpec, read
from tests.servers import Server

GUIDE = (Path(__file__).parents[3] / "docs" / "proxy.md").read_text()
WORDS = {
    "index": "1", "integer": "1", "offset": "1", "limit": "1", "count": "1", "cursor": "0", "score": "1", "bound": "1",
    "lex": "-", "pattern": "*",
}  # fmt: skip


def with_everything(command: CommandSpec) -> list[str]:
    """A command with all that it takes, each key another one."""
    words = [command.name]
    kinds = [*command.words, *command.many * 3, *(kind for some in command.options.values() for kind in some)]
    for i, kind in enumerate([*command.words, *command.many * 3]):
        words.append(WORDS.get(kind, f"{kind}{i}"))
    for name, more in command.options.items():
        words += [name, *(WORDS[kind] for kind in more)]
    assert len(words) == 1 + len(kinds) + len(command.options)
    return words


def test_keys_are_where_valkey_finds_them(session_server: Server) -> None:
    with session_server.redis_client() as valkey:
        for command in COMMANDS.values():
            words = with_everything(command)
            if command.name == "ZRANGE":  # which cannot have all its options at once
                words = ["ZRANGE", "key0", "1", "1", "WITHSCORES", "REV", "BYSCORE", "LIMIT", "0", "5"]
            assert read(words).keys == valkey.command_getkeys(*words), words


def test_commands_read_or_write_as_the_table_says_and_none_does_more(session_server: Server) -> None:
    with session_server.redis_client() as valkey:
        known: dict[str, Any] = valkey.command()
    for name, command in COMMANDS.items():
        flags = set(known[name.lower()]["flags"])
        assert ("write" if command.writes else "readonly") in flags, name
        assert not flags & {"admin", "blocking", "pubsub", "noscript", "movablekeys"}, name


def test_the_guide_names_every_command_and_the_real_limits() -> None:
    listed = GUIDE.partition("## Commands")[2].partition("## Limits")[0]
    assert set(re.findall(r"\b[A-Z]{3,}\b", listed)) == {*COMMANDS, *GREETINGS}
    told = GUIDE.replace("\n", " ")
    for limit in (
        f"{encoding.MOST_COMMANDS} commands, {encoding.MOST_WORDS:,} words, {encoding.BODY_BYTES // 1024} KiB",
        f"{service.SECONDS:g} seconds",
        f"{service.MOST_ELEMENTS:,} elements",
        f"{service.MOST_BYTES // 2**20} MiB",
        f"up to {LONGEST_CUSTOM} characters",
        f"at most {LONGEST_VALUE:,} characters, "
        f"a profile {execution.MOST_FIELDS} fields and {execution.MOST_BYTES:,} bytes",
    ):
        assert limit in told, limit
