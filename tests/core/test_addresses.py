"""Addresses are stored as their network, unless a setting says otherwise."""

from __future__ import annotations

from plaza.core.addresses import stored_address, truncate_address


def test_truncating_keeps_the_network() -> None:
    assert truncate_address("203.0.113.77") == "203.0.113.0"
    assert truncate_address("2001:db8:aa:bb::1") == "2001:db8:aa::"
    assert truncate_address("local") == "local"


def test_the_setting_decides_what_is_stored() -> None:
    assert stored_address("203.0.113.77", "truncated") == "203.0.113.0"
    assert stored_address("203.0.113.77", "full") == "203.0.113.77"
    assert stored_address(None, "truncated") == ""
