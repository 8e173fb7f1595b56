"""Converts JSON request bodies to commands, and replies to JSON.

Numbers are passed on as they are written: `9007199254740993` and `1e-7` reach Valkey with every digit, which a float
would lose. Replies have RESP2 shapes. Bytes that are not UTF-8 can be requested in base64.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

import msgspec

from plaza.core.http.problem_details import BadJson
from plaza.keyspace.proxy.commands import Refused
from plaza.keyspace.proxy.service import Outcome

MAX_COMMANDS: Final = 256
MAX_ARGUMENTS: Final = 4_096
# Enough for these commands. Parsing blocks the process, and a body of nothing but brackets takes 12 ms at this size.
MAX_BODY_BYTES: Final = 256 * 1024

Command = Annotated[
    list[str | float | bool],
    msgspec.Meta(min_length=1, max_length=MAX_ARGUMENTS, description="A command and its arguments."),
]
Commands = Annotated[
    list[Command], msgspec.Meta(min_length=1, max_length=MAX_COMMANDS, description="Commands, run in order.")
]
Reply = str | int | list[Any] | None


class CommandResult(msgspec.Struct):
    """The result of a command, or why it was refused."""

    result: Reply | msgspec.UnsetType = msgspec.UNSET
    error: str | msgspec.UnsetType = msgspec.UNSET


class CommandResults(msgspec.Struct):
    """The results in order, with the error text in the place of a refused command. API keys have no username."""

    results: list[Reply]
    username: str | None


_OK: Final = b"OK"
_NOT_COMMANDS: Final = "The body is not a command or an array of commands. Send a JSON array."
_TOO_LONG: Final = f"ERR a request has at most {MAX_COMMANDS} commands and {MAX_ARGUMENTS} arguments"

# Items stay undecoded until the length of the array is checked.
_decode_array: Callable[[bytes | msgspec.Raw], list[msgspec.Raw]] = msgspec.json.Decoder(
    Annotated[list[msgspec.Raw], msgspec.Meta(max_length=MAX_ARGUMENTS)]
).decode
_decode_string = msgspec.json.Decoder(str).decode


def parse_body(body: bytes) -> list[msgspec.Raw]:
    """The items of the request's array, undecoded."""
    items = _items(body)
    if not items:
        raise BadJson(_NOT_COMMANDS)
    return items


def _items(text: bytes | msgspec.Raw) -> list[msgspec.Raw]:
    try:
        return _decode_array(text)
    except msgspec.ValidationError as error:  # too long, or not an array
        raise (Refused(_TOO_LONG) if bytes(text).lstrip()[:1] == b"[" else BadJson(_NOT_COMMANDS)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadJson(_NOT_COMMANDS) from error


def is_single(items: list[msgspec.Raw]) -> bool:
    """Whether the request is one command and not an array of commands."""
    return bytes(items[0])[:1] == b'"'


def decode_command(items: list[msgspec.Raw]) -> list[str]:
    """The words of one command; empty, and refused later, if an item is not a string, number or boolean."""
    words = [_word(bytes(item)) for item in items]
    return [word for word in words if word is not None] if None not in words else []


def decode_commands(items: list[msgspec.Raw]) -> list[list[str]]:
    """The commands of a request. An invalid one stays in its place as an empty command, and is refused later."""
    if len(items) > MAX_COMMANDS:
        raise Refused(_TOO_LONG)
    arrays = [_items(item) if bytes(item)[:1] == b"[" else [] for item in items]
    if sum(map(len, arrays)) > MAX_ARGUMENTS:
        raise Refused(_TOO_LONG)
    return [decode_command(array) for array in arrays]


def _word(raw: bytes) -> str | None:
    """A string, a number as it is written, or a boolean."""
    if raw[:1] == b'"':
        try:
            return _decode_string(raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:  # a lone surrogate
            raise BadJson(_NOT_COMMANDS) from error
    return None if raw[:1] in (b"[", b"{", b"n") else raw.decode()


def as_text(value: bytes) -> str:
    return value.decode(errors="replace")


def as_base64(value: bytes) -> str:
    return "OK" if value == _OK else b64encode(value).decode()


def to_json(value: Any, encode: Callable[[bytes], str]) -> Any:
    """A reply as JSON, with its strings encoded by `encode`."""
    if isinstance(value, bytes):
        return encode(value)
    if isinstance(value, list):
        return [to_json(item, encode) for item in value]
    return value


def to_list(outcomes: Sequence[Outcome], encode: Callable[[bytes], str]) -> list[Reply]:
    """The results in order, with the error text in the place of a refused command."""
    return [str(outcome) if isinstance(outcome, Refused) else to_json(outcome, encode) for outcome in outcomes]


def to_object(outcome: Outcome, encode: Callable[[bytes], str]) -> CommandResult:
    """The result as an Upstash object: `{"result": …}` or `{"error": …}`."""
    if isinstance(outcome, Refused):
        return CommandResult(error=str(outcome))
    return CommandResult(to_json(outcome, encode))
