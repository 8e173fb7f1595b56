"""Estimates the work that a command asks of Valkey, before it is sent. One unit is about a microsecond.

The weights are rounded up from measurements. What the arguments do not tell is bounded first: the length of a long
result is read before its elements, and a field that is named twice is read once.
"""

from __future__ import annotations

from typing import Final

from plaza.keyspace.proxy.commands import DEFAULT_SCAN_COUNT, PAGE_ELEMENTS, ParsedCommand

# A Lua function, in comparison with a plain command.
FUNCTION_CALL: Final = 4
# Valkey stores a small hash, sorted set or set in one piece, and a scan reads that piece whatever its COUNT is.
SCANNED_AT_LEAST: Final = {"HSCAN": 128, "ZSCAN": 128, "SSCAN": 512}
# Characters of a pattern that are compared with an element in one unit, for each of its stars.
COMPARED_CHARACTERS: Final = 16
# A value may have 16 KiB.
FIELD: Final = 4
WHOLE_HASH: Final = 64
# The size of the whole profile is checked first.
WRITE: Final = 128
# Valkey before 8 steps over the elements that LIMIT skips.
SKIPPED_ELEMENTS: Final = 100


def element_work(count: int) -> int:
    """The work of returning elements of a set, list or sorted set."""
    return -(-count // 2)


def command_work(command: ParsedCommand) -> int:
    """The work of one command on one key, without the elements of a long result."""
    spec = command.spec
    work = 1 + len(command.arguments)
    if spec.writes:
        work += WRITE
    elif spec.name in SCANNED_AT_LEAST:
        work += _scanned(command) * _per_scanned_element(command)
    elif spec.key_type == "hash" and spec.length_command is not None:
        work += WHOLE_HASH
    elif spec.key_type == "hash":
        work += FIELD * len(set(command.fields))
    elif spec.length_command is not None:
        work += element_work(PAGE_ELEMENTS) * (2 if "WITHSCORES" in command.options else 1)
    if "LIMIT" in command.options:
        work += int(command.options["LIMIT"][0]) // SKIPPED_ELEMENTS
    return work


def _scanned(command: ParsedCommand) -> int:
    count = int(command.options.get("COUNT", [DEFAULT_SCAN_COUNT])[0])
    return max(count, SCANNED_AT_LEAST[command.spec.name])


def _per_scanned_element(command: ParsedCommand) -> int:
    pattern = command.options.get("MATCH", [""])[0]
    return 1 + pattern.count("*") * len(pattern) // COMPARED_CHARACTERS
