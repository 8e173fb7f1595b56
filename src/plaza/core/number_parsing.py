"""Parses numbers that other services wrote to documented keys. Nothing here raises.

Use it for every number read from a key that others may write, and for every score: a score can be infinite. In Lua use
`finite(value, default)` of the prelude.

- `parse_int(value, default)`: a fraction is cut off, so `"1700000000000.5"` is `1700000000000`.
- `parse_float(value, default)`: always finite.
- `parse_time_ms(value, default)`: Unix milliseconds that `datetime` can show.

`default` is returned for None, an empty text, NaN, infinity, any other text, and numbers out of range. Pass None to
recognise and skip such a value.
"""

from __future__ import annotations

from typing import Final, TypeVar, overload

D = TypeVar("D")

Number = str | bytes | int | float | None

# What SQL and JavaScript can store, with room to add two of them.
_MAX: Final = float(2**62)
# 9999-12-31T23:59:59.999Z, the last time that `datetime` knows.
MAX_TIME_MS: Final = 253_402_300_799_999

_MAX_CHARS: Final = 400  # a longer text is not a number that a service meant


@overload
def parse_int(value: Number) -> int: ...
@overload
def parse_int(value: Number, default: D) -> int | D: ...
def parse_int(value: Number, default: object = 0) -> object:
    """Return a whole number, cutting a fraction off, or `default`."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, str):
        if value.isdigit() and len(value) <= 18 and value.isascii():
            return int(value)  # exact, also above 2**53
    elif isinstance(value, int):
        return int(value) if -_MAX < value < _MAX else default
    number = parse_float(value, None)
    return default if number is None else int(number)


@overload
def parse_float(value: Number) -> float: ...
@overload
def parse_float(value: Number, default: D) -> float | D: ...
def parse_float(value: Number, default: object = 0.0) -> object:
    """Return a finite number, or `default`."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    # `float` alone would also accept "1_000" and digits of other scripts.
    if value is None or (isinstance(value, str) and (len(value) > _MAX_CHARS or "_" in value or not value.isascii())):
        return default
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return default
    return number if -_MAX < number < _MAX else default  # NaN fails both comparisons


@overload
def parse_time_ms(value: Number) -> int: ...
@overload
def parse_time_ms(value: Number, default: D) -> int | D: ...
def parse_time_ms(value: Number, default: object = 0) -> object:
    """Return Unix milliseconds from 1970 to 9999, or `default`."""
    ms = parse_int(value, None)
    return ms if ms is not None and 0 <= ms <= MAX_TIME_MS else default
