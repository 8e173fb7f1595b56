"""A session shows a device that its user recognizes, and stores nothing that identifies the user."""

from __future__ import annotations

import pytest

from plaza.core.clients import MAX_DEVICE_CHARACTERS, ClientInfo

CHROME = "Mozilla/5.0 (Windows NT 10.0; Win64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36"
SAFARI = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 Version/18.5 Safari/604.1"


@pytest.mark.parametrize(
    ("user_agent", "device"),
    [
        ("Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", "Firefox on Linux"),
        (CHROME, "Chrome on Windows"),
        (CHROME + " Edg/140.0.0.0", "Edge on Windows"),
        (SAFARI, "Safari on iPhone"),
        ("python-httpx/0.28.1", "python-httpx"),
        ("curl/8.5.0", "curl"),
        ("", ""),
        ("|<script>", ""),
        ("\u202eevil", ""),
    ],
)
def test_a_device_has_a_short_name(user_agent: str, device: str) -> None:
    assert ClientInfo(user_agent=user_agent).device_name == device


def test_a_long_user_agent_is_not_stored() -> None:
    assert len(ClientInfo(user_agent="x" * 100_000).device_name) <= MAX_DEVICE_CHARACTERS


def test_an_address_is_stored_by_the_setting() -> None:
    assert ClientInfo("203.0.113.7").stored_address("truncated") == "203.0.113.0"
    assert ClientInfo("203.0.113.7").stored_address("full") == "203.0.113.7"
