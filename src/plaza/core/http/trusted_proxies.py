"""The client's address and scheme behind trusted proxies.

Any client can send `X-Forwarded-For`; only what trusted proxies appended is reliable. So the header is read only if the
peer is trusted, and from the right: the first address that is not a trusted proxy is the client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from plaza.core.errors import SettingError

Network = IPv4Network | IPv6Network

# The address of a peer on a unix socket, which has none.
LOCAL = "local"


class TrustedProxies:
    """The networks of trusted proxies, and what their headers say about a client."""

    def __init__(self, trusted: Sequence[str] = ()) -> None:
        self.networks = tuple(_network(text) for text in trusted)
        self.trusts = lru_cache(1024)(self._trusts)

    def client_address(self, peer: str | None, headers: Mapping[str, str]) -> str:
        """The address of the client: the peer's, or the rightmost forwarded one that is not a trusted proxy."""
        address = LOCAL if peer is None else _normalized(peer)
        if not self.networks or not self.trusts(address):
            return address
        for hop in reversed(_values(headers, "x-forwarded-for")):
            if _parse(hop) is None:
                return address  # invalid, so everything to its left is unreliable too
            address = _normalized(hop)
            if not self.trusts(address):
                return address
        return address

    def is_proxied(self, peer: str | None) -> bool:
        """Whether the peer is a trusted proxy."""
        return bool(self.networks) and self.trusts(LOCAL if peer is None else _normalized(peer))

    def is_https(self, peer: str | None, headers: Mapping[str, str], scheme: str) -> bool:
        """Whether the client uses https."""
        if self.networks and self.is_proxied(peer):
            protocols = _values(headers, "x-forwarded-proto")
            if protocols:
                return protocols[-1].lower() == "https"
        return scheme == "https"

    def _trusts(self, address: str) -> bool:
        parsed = _parse(address)
        return parsed is not None and any(parsed in network for network in self.networks)


def _values(headers: Mapping[str, str], name: str) -> list[str]:
    # A proxy may append to the header or add a second one; both mean the same list, and are joined by a comma.
    return [value for value in (part.strip() for part in headers.get(name, "").split(",")) if value]


def _network(text: str) -> Network:
    try:
        return ip_network(text, strict=False)
    except ValueError as error:
        raise SettingError(f"PLAZA_TRUSTED_PROXIES: {text!r} is not an address or a network.") from error


def _parse(text: str) -> IPv4Address | IPv6Address | None:
    """Parse an address as proxies write it: plain, `[v6]`, or with a port. None if it is invalid."""
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
    # IPv4 over an IPv6 socket is the same client. A zone (`fe80::1%eth0`) has a meaning only on the machine that wrote
    # it, and may be any text.
    return address.ipv4_mapped or IPv6Address(int(address))


@lru_cache(4096)
def _normalized(text: str) -> str:
    parsed = _parse(text)
    return text if parsed is None else str(parsed)
