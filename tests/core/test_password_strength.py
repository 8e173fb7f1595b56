"""Passwords that are easy to guess are refused, in bounded time."""

from __future__ import annotations

import pytest

from plaza.core.password_strength import WeakPassword, require_strong


@pytest.mark.parametrize(
    "password", ["trustno1", "12345678", "qwertyuiop", "iloveyou1", "anastasia", "plazaplaza", "2026-11-17", "a" * 16]
)
def test_an_easy_password_is_refused_with_a_hint(password: str) -> None:
    with pytest.raises(WeakPassword) as refused:
        require_strong(password, "ana", "password")
    assert refused.value.extra["field"] == "password"
    assert refused.value.detail.endswith("Use several uncommon words.")
    assert password not in refused.value.detail


@pytest.mark.parametrize("password", ["correct horse", "ziffern und wolken", "Tr0ub4dor&3x", "雨の日に歩く音楽"])
def test_a_strong_password_is_accepted(password: str) -> None:
    require_strong(password, "ana", "password")


def test_a_long_password_is_estimated_by_its_beginning() -> None:
    require_strong("several uncommon words " * 11, "ana", "password")
