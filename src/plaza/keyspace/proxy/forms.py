"""Commands out of JSON, answers into JSON.

A number is taken as it was written: `9007199254740993` and `1e-7` reach Valkey with every digit, which they would not
by way of a float. Answers have RESP2 shapes; a string that is no UTF-8 has to be asked for in base64.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any, Final

from plaza.core.serving.problems import BadJson
from plaza.keyspace.proxy.commands import Refused
from plaza.keyspace.proxy.service import Outcome

MOST_COMMANDS: Final = 256
MOST_WORDS: Final = 4_096
# All that these commands can need. Reading a body is work for which nobody else is served, half a second for a mebibyte
# of brackets.
BODY_BYTES: Final = 256 * 1024

_OK: Final = b"OK"
_WORDS: Final = {True: "true", False: "false"}


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_decode = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_no_constant).decode


def parse(body: bytes) -> list[Any]:
    """The array that every form of a call is."""
    try:
        found = _decode(body.decode())
    except (ValueError, RecursionError) as error:
        raise BadJson("The body is not a JSON array of a command or of commands.") from error
    if not isinstance(found, list) or not found:
        raise BadJson("The body is not a JSON array of a command or of commands.")
    return found


def is_single(found: list[Any]) -> bool:
    """Whether a call is one command, and not an array of them."""
    return isinstance(found[0], str)


def commands_in(found: list[Any]) -> list[list[str]]:
    """The commands of a call. One that is none stays in its place, as an empty one, and is refused there."""
    if len(found) > MOST_COMMANDS or sum(len(item) for item in found if isinstance(item, list)) > MOST_WORDS:
        raise Refused(f"ERR a call has at most {MOST_COMMANDS} commands and {MOST_WORDS} words")
    return [_words(item) for item in found]


def _words(item: Any) -> list[str]:
    if not isinstance(item, list):
        return []
    words = [_WORDS[word] if isinstance(word, bool) else word for word in item]
    return words if all(map(_is_text, words)) else []


def _is_text(word: Any) -> bool:
    """Whether this can be sent: JSON can spell halves of characters, which no encoding has."""
    if not isinstance(word, str):
        return False
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_text(value: bytes) -> str:
    return value.decode(errors="replace")


def as_base64(value: bytes) -> str:
    return "OK" if value == _OK else b64encode(value).decode()


def plain(value: Any, string: Callable[[bytes], str]) -> Any:
    """A reply as JSON has it, with strings as asked for."""
    if isinstance(value, bytes):
        return string(value)
    if isinstance(value, list):
        return [plain(item, string) for item in value]
    return value


def in_place(outcomes: Sequence[Outcome], string: Callable[[bytes], str]) -> list[Any]:
    """Answers in a row, and the error of what was refused in its place."""
    return [str(outcome) if isinstance(outcome, Refused) else plain(outcome, string) for outcome in outcomes]


def wrapped(outcome: Outcome, string: Callable[[bytes], str]) -> dict[str, Any]:
    """An answer as Upstash has it."""
    if isinstance(outcome, Refused):
        return {"error": str(outcome)}
    return {"result": plain(outcome, string)}
