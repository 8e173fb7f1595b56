"""From where people watch: their country, and as much of their address as the setting allows to be stored.

The GeoIP file is a CSV of `network,country`, a line each: `203.0.113.0/24,NZ`. Networks may lie in one another; the
smallest counts. At start they become one sorted list of ranges without overlaps for IPv4 and one for IPv6, so that a
look-up is one bisection.
"""

from __future__ import annotations

import hmac
import re
from bisect import bisect_right
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path

from plaza.core.errors import SettingError
from plaza.core.settings import LiveAddress
from plaza.live.address_salts import AddressSalts
from plaza.live.model import UNKNOWN_COUNTRY

# What the common proxies and content networks call it.
COUNTRY_HEADERS = ("cf-ipcountry", "cloudfront-viewer-country", "x-country-code")

# What hashing leaves of an address: enough that two of an event's viewers hardly share one.
HASH_DIGITS = 16

_COUNTRY = re.compile(r"[A-Z]{2}")
# Proxies say so when they do not know.
_NOWHERE = {"XX", UNKNOWN_COUNTRY}

Range = tuple[int, int, str]


class GeoIp:
    """Countries by address."""

    def __init__(self, networks: Mapping[str, str]) -> None:
        ranges: dict[int, list[Range]] = {4: [], 6: []}
        for text, country in networks.items():
            network = ip_network(text, strict=False)
            ranges[network.version].append((int(network[0]), int(network[-1]), country))
        self._ranges = {version: flatten(found) for version, found in ranges.items()}
        self._starts = {version: [start for start, _, _ in found] for version, found in self._ranges.items()}
        self.country = lru_cache(65_536)(self._country)

    @classmethod
    def read(cls, path: Path | None) -> GeoIp:
        """The file's networks; a line that makes no sense is refused with its number."""
        if path is None:
            return cls({})
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingError(f"PLAZA_GEOIP cannot be read: {error}.") from None
        networks = {}
        for number, line in enumerate(lines, 1):
            if line.strip() in ("", "network,country") or line.startswith("#"):
                continue
            network, _, country = (part.strip() for part in line.partition(","))
            try:
                ip_network(network, strict=False)
            except ValueError:
                raise SettingError(f"PLAZA_GEOIP, line {number}: {network!r} is no network.") from None
            if not _COUNTRY.fullmatch(country.upper()):
                raise SettingError(f"PLAZA_GEOIP, line {number}: {country!r} is no country of two letters.")
            networks[network] = country.upper()
        return cls(networks)

    def _country(self, address: str) -> str:
        parsed = parse(address)
        if parsed is None:
            return UNKNOWN_COUNTRY
        place = bisect_right(self._starts[parsed.version], int(parsed)) - 1
        if place < 0:
            return UNKNOWN_COUNTRY
        _, end, country = self._ranges[parsed.version][place]
        return country if int(parsed) <= end else UNKNOWN_COUNTRY


def flatten(ranges: list[Range]) -> list[Range]:
    """Ranges that do not overlap and say the same. Networks lie in one another or apart, so a stack will do."""
    flat: list[Range] = []
    around: list[tuple[int, str]] = []  # end and country of the ranges we are in, outermost first
    at = 0

    def emit(until: int) -> None:
        nonlocal at
        if around and at <= until:
            flat.append((at, until, around[-1][1]))
        at = until + 1

    for start, end, country in sorted(ranges, key=lambda r: (r[0], -r[1])):
        while around and around[-1][0] < start:
            emit(around[-1][0])
            around.pop()
        if around:
            emit(start - 1)
        at = start
        around.append((end, country))
    while around:
        emit(around[-1][0])
        around.pop()
    return flat


def parse(address: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(address)
    except ValueError:
        return None  # someone on our unix socket


class GeoLocator:
    """What is stored of where a request came from."""

    def __init__(self, salts: AddressSalts, mode: LiveAddress, geoip: GeoIp) -> None:
        self._salts = salts
        self._mode = mode
        self._geoip = geoip

    def country(self, address: str, headers: Mapping[str, str], proxied: bool) -> str:
        """By a trusted proxy's header, else by the address; anyone else's header is hearsay."""
        if proxied:
            for name in COUNTRY_HEADERS:
                said = headers.get(name, "").strip().upper()
                if _COUNTRY.fullmatch(said) and said not in _NOWHERE:
                    return said
        return self._geoip.country(address)

    async def stored(self, address: str) -> str:
        """An address as statistics members hold it. Costs a round trip once a day, if it is hashed."""
        if self._mode == "full":
            return address
        if self._mode == "truncated":
            return truncated(address)
        return hmac.digest(await self._salts.today(), address.encode(), "sha256").hex()[:HASH_DIGITS]


@lru_cache(65_536)
def truncated(address: str) -> str:
    """The network someone is in: a /24 of IPv4, a /48 of IPv6."""
    parsed = parse(address)
    if parsed is None:
        return address
    return str(ip_network((parsed, 24 if parsed.version == 4 else 48), strict=False)[0])
