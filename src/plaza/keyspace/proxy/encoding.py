"""Commands out of JSON, answers into JSON.

A number is taken as it was written: `9007199254740993` and `1e-7` reach Valkey with every digit, which they would not
by way of a float. Answers have RESP2 shapes; a string that is no UTF-8 has to be asked for in base64.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

import msgspec

from plaza.core.http.problem_details import BadJson
from plaza.keyspace.proxy.commands import Refused
from plaza.keyspace.proxy.service import Outcome

MOST_COMMANDS: Final = 256
MOST_WORDS: Final = 4_096
# All that these commands can need. While a body is read nobody else is served, and one of nothing but brackets takes
# twelve milliseconds at this size.
BODY_BYTES: Final = 256 * 1024

_OK: Final = b"OK"
_NO_CALL: Final = "The body is not a JSON array of a command or of commands."
_TOO_LONG: Final = f"ERR a call has at most {MOST_COMMANDS} commands and {MOST_WORDS} words"

# What is in an array is left as it was written until the array is known not to be too long.
_array: Callable[[bytes | msgspec.Raw], list[msgspec.Raw]] = msgspec.json.Decoder(
    Annotated[list[msgspec.Raw], msgspec.Meta(max_length=MOST_WORDS)]
).decode
_string = msgspec.json.Decoder(str).decode


def parse(body: bytes) -> list[msgspec.Raw]:
    """The array that every form of a call is."""
    found = _items(body)
    if not found:
        raise BadJson(_NO_CALL)
    return found


def _items(text: bytes | msgspec.Raw) -> list[msgspec.Raw]:
    try:
        return _array(text)
    except msgspec.ValidationError as error:  # too long, or no array at all
        raise (Refused(_TOO_LONG) if bytes(text).lstrip()[:1] == b"[" else BadJson(_NO_CALL)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadJson(_NO_CALL) from error


def is_single(found: list[msgspec.Raw]) -> bool:
    """Whether a call is one command, and not an array of them."""
    return bytes(found[0])[:1] == b'"'


def command_of(found: list[msgspec.Raw]) -> list[str]:
    """The words of one command; none at all if one of them is none, which is refused then."""
    words = [_word(bytes(item)) for item in found]
    return [word for word in words if word is not None] if None not in words else []


def commands_in(found: list[msgspec.Raw]) -> list[list[str]]:
    """The commands of a call. One that is none stays in its place, as an empty one, and is refused there."""
    if len(found) > MOST_COMMANDS:
        raise Refused(_TOO_LONG)
    arrays = [_items(item) if bytes(item)[:1] == b"[" else [] for item in found]
    if sum(map(len, arrays)) > MOST_WORDS:
        raise Refused(_TOO_LONG)
    return [command_of(words) for words in arrays]


def _word(written: bytes) -> str | None:
    """A string, a number as it was written, or a boolean."""
    if written[:1] == b'"':
        try:
            return _string(written)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:  # half a character, which no encoding has
            raise BadJson(_NO_CALL) from error
    return None if written[:1] in (b"[", b"{", b"n") else written.decode()


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
