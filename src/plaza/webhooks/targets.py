"""Which addresses a webhook may be sent to: an endpoint must not reach the operator's own network.

A URL is checked when it is saved, for early feedback. What counts is the check of the address at connect time
(`http_client.py`), because a name can resolve to another address later.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final
from urllib.parse import urlsplit

from plaza.core.errors import Invalid

# Addresses of IPv4 hosts behind NAT64 (RFC 6052): the last 32 bits are the IPv4 address.
_NAT64: Final = IPv6Network("64:ff9b::/96")


def is_public(address: str) -> bool:
    """Whether an IP address belongs to the public Internet. False for what is not an IP address."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(parsed, IPv6Address):
        embedded = _embedded_ipv4(parsed)
        if embedded is not None:
            return _is_global(embedded)
    return _is_global(parsed)


def _embedded_ipv4(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that a router or the system would connect to; None for ordinary IPv6 addresses."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)


def _is_global(address: IPv4Address | IPv6Address) -> bool:
    site_local = isinstance(address, IPv6Address) and address.is_site_local
    return address.is_global and not (address.is_multicast or address.is_reserved or site_local)


def check_url(url: str, *, allow_private: bool) -> None:
    """Raise `Invalid` if no webhook may have this URL. Without I/O: names are not resolved."""
    if not url.isascii() or not url.isprintable() or " " in url:
        raise _invalid("The URL must be printable ASCII. Encode other characters.")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise _invalid("Invalid URL. Use one such as https://example.org/hook.") from None
    if parts.scheme not in ("http", "https") or not host:
        raise _invalid("Invalid URL. Use one such as https://example.org/hook.")
    if parts.username is not None or parts.password is not None:
        raise _invalid("The URL must not contain a username or password. Requests are signed instead.")
    if parts.fragment:
        raise _invalid("The URL must not have a fragment (#…).")
    if allow_private:
        return
    if parts.scheme != "https":
        raise _invalid("The URL must start with https://.")
    if _is_ip(host) and not is_public(host):
        raise _invalid("The URL must not lead to a private address.")


def _is_ip(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _invalid(detail: str) -> Invalid:
    return Invalid(detail, field="url")
