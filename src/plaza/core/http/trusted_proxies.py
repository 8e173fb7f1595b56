"""Who is at the other end, behind proxies that may or may not be ours.

`X-Forwarded-For` is a list anyone can begin; only what our own proxies appended is true. So it is believed only from a
trusted peer, and read from the right: the first address that is not one of our proxies is the client. Everything to the
left of it is hearsay.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

from plaza.core.errors import SettingError

Network = IPv4Network | IPv6Network

# A name for a peer without an address: someone on our unix socket.
LOCAL = "local"


class Proxies:
    """The networks our own proxies are in, and what they tell us of clients."""

    def __init__(self, trusted: Sequence[str] = ()) -> None:
        self.networks = tuple(_network(text) for text in trusted)
        self.trusts = lru_cache(1024)(self._trusts)

    def client(self, scope: dict[str, Any]) -> str:
        peer = scope.get("client")
        address = _normal(peer[0]) if peer and peer[0] else LOCAL
        if not self.networks or not self.trusts(address):
            return address
        for hop in reversed(_forwarded(scope, b"x-forwarded-for")):
            if _parse(hop) is None:
                return address  # nonsense: what stands to its left cannot be believed either
            address = _normal(hop)
            if not self.trusts(address):
                return address
        return address

    def behind(self, scope: dict[str, Any]) -> bool:
        """Whether the request came through a proxy of ours, whose word on the client counts."""
        peer = scope.get("client")
        return bool(self.networks) and self.trusts(_normal(peer[0]) if peer and peer[0] else LOCAL)

    def secure(self, scope: dict[str, Any]) -> bool:
        if self.behind(scope):
            said = _forwarded(scope, b"x-forwarded-proto")
            if said:
                return said[-1].lower() == "https"
        return bool(scope.get("scheme") == "https")

    def _trusts(self, address: str) -> bool:
        parsed = _parse(address)
        return parsed is not None and any(parsed in network for network in self.networks)


def _forwarded(scope: dict[str, Any], header: bytes) -> list[str]:
    # A proxy may append to the header or add a second one; both are the same list.
    lines = [value.decode("latin-1") for name, value in scope["headers"] if name == header]
    return [hop for hop in (part.strip() for part in ",".join(lines).split(",")) if hop]


def _network(text: str) -> Network:
    try:
        return ip_network(text, strict=False)
    except ValueError as error:
        raise SettingError(f"PLAZA_TRUSTED_PROXIES: {text!r} is no address or network.") from error


def _parse(text: str) -> IPv4Address | IPv6Address | None:
    """An address as proxies write it: bare, `[v6]`, or with a port."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if not isinstance(address, IPv6Address):
        return address
    # One client that comes by IPv4 over an IPv6 socket is the same client. A zone (`fe80::1%eth0`) means something to
    # the machine that wrote it alone, and may be any text.
    return address.ipv4_mapped or IPv6Address(int(address))


@lru_cache(4096)
def _normal(text: str) -> str:
    parsed = _parse(text)
    return text if parsed is None else str(parsed)
