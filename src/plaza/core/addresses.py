"""IP addresses, and the form in which they may be stored."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from plaza.core.settings import AccountAddress


def parse_address(address: str) -> IPv4Address | IPv6Address | None:
    """Return the IP address; None for a client of the unix socket, which has none."""
    try:
        return ip_address(address)
    except ValueError:
        return None


@lru_cache(65_536)
def truncate_address(address: str) -> str:
    """Return the network of an address: a /24 of IPv4, a /48 of IPv6."""
    parsed = parse_address(address)
    if parsed is None:
        return address
    return str(ip_network((parsed, 24 if parsed.version == 4 else 48), strict=False)[0])


def stored_address(address: str | None, mode: AccountAddress) -> str:
    """Return an address as sessions and the security log store it; empty if it is unknown."""
    if not address:
        return ""
    return address if mode == "full" else truncate_address(address)
