"""Numbers that others wrote are parsed without an exception, in Python and in Lua."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plaza.core.functions import Functions, Library
from plaza.core.keyspace import Catalogue
from plaza.core.number_parsing import MAX_TIME_MS, Number, parse_float, parse_int, parse_time_ms
from plaza.core.valkey import Valkey

NOT_NUMBERS: list[Number] = [
    None, "", " ", "abc", "nan", "NaN", "-nan", "inf", "-inf", "+Infinity", "1e999", "9" * 5000, "1_000", "0x10", "١٢",
    "12abc", "--1", "1e", ".", b"\xff", math.nan, math.inf, -math.inf, 10**400, "1 2", "1,5", "12\x00",
]  # fmt: skip


@pytest.mark.parametrize("value", NOT_NUMBERS)
def test_what_is_not_a_finite_number_is_the_default(value: Number) -> None:
    assert parse_int(value) == 0
    assert parse_float(value) == 0.0
    assert parse_time_ms(value) == 0
    assert parse_int(value, None) is parse_float(value, None) is parse_time_ms(value, None) is None


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("12", 12.0), ("-3", -3.0), ("+7", 7.0), ("1700000000000.5", 1700000000000.5), ("1e3", 1000.0), (" 4 ", 4.0),
        (".5", 0.5), ("5.", 5.0), (b"6", 6.0), (8, 8.0), (2.75, 2.75), ("-0.9", -0.9), ("007", 7.0),
    ],
)  # fmt: skip
def test_numbers_are_parsed_and_fractions_cut_off(value: Number, number: float) -> None:
    assert parse_float(value) == number
    assert parse_int(value) == int(number)


def test_whole_numbers_are_exact() -> None:
    assert parse_int(str(2**53 + 1)) == 2**53 + 1
    assert parse_int(2**53 + 1) == 2**53 + 1


@pytest.mark.parametrize(("value", "expected"), [("-1", None), (MAX_TIME_MS, MAX_TIME_MS), (MAX_TIME_MS + 1, None)])
def test_times_are_between_1970_and_9999(value: Number, expected: int | None) -> None:
    assert parse_time_ms(value, None) == expected


@given(st.one_of(st.text(), st.binary(), st.integers(), st.floats(), st.none()))
def test_any_value_gives_finite_numbers_that_datetime_can_show(value: Number) -> None:
    assert math.isfinite(parse_float(value))
    assert isinstance(parse_int(value), int)
    datetime.fromtimestamp(parse_time_ms(value) / 1000, UTC)


async def test_finite_in_lua_agrees(valkey: Valkey) -> None:
    lua = "query('finite', function(_, args) return text(finite(args[1], -1)) end)"
    functions = Functions(valkey, [Library("numbers", Catalogue("numbers", {}, {}), lua)])
    await functions.load()
    texts = [value for value in NOT_NUMBERS if isinstance(value, str)] + ["12", "-3", "1700000000000.5", "1e3", ".5"]
    for text in texts:
        assert float(await functions.query("numbers_finite", ["any"], text)) == parse_float(text, -1.0), text
