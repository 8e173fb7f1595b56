"""Where viewers are: their country, and their address in the form that the settings allow to be stored.

The country comes from a trusted proxy's header, else from the MaxMind DB file that `PLAZA_GEOIP` names, else it is
`ZZ`.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from plaza.core.addresses import parse_address, truncate_address
from plaza.core.errors import SettingError
from plaza.core.settings import LiveAddress
from plaza.live.address_salts import AddressSalts
from plaza.live.model import UNKNOWN_COUNTRY

# The names that common proxies and content networks use.
COUNTRY_HEADERS = ("cf-ipcountry", "cloudfront-viewer-country", "x-country-code")

# Long enough that two viewers of an event rarely share a hash.
HASH_DIGITS = 16

_COUNTRY = re.compile(r"[A-Z]{2}")
# Proxies send these when they do not know the country.
_UNKNOWN_COUNTRIES = {"XX", UNKNOWN_COUNTRY}


class GeoIp:
    """Looks up the country of an address in a MaxMind DB file (`.mmdb`), of MaxMind, DB-IP, IPinfo or your own."""

    def __init__(self, reader: Any = None) -> None:
        self._reader = reader
        self.country = lru_cache(65_536)(self._country)

    @classmethod
    def open(cls, path: Path | None) -> GeoIp:
        """Open the file of `PLAZA_GEOIP`. Without a file every country is unknown."""
        if path is None:
            return cls()
        # Imported here: most installations have no GeoIP file and need not load the library.
        import maxminddb

        try:
            return cls(maxminddb.open_database(str(path)))
        except OSError as error:
            raise SettingError(f"PLAZA_GEOIP cannot be read: {error.strerror or error}.") from None
        except (maxminddb.InvalidDatabaseError, ValueError):
            raise SettingError("PLAZA_GEOIP is not a MaxMind DB file. Give a file that ends in .mmdb.") from None

    def _country(self, address: str) -> str:
        parsed = parse_address(address)
        if parsed is None or self._reader is None:
            return UNKNOWN_COUNTRY
        try:
            record = self._reader.get(parsed)
        except ValueError:  # an IPv6 address, and the file has IPv4 only
            return UNKNOWN_COUNTRY
        code = _country_code(record)
        return code if _COUNTRY.fullmatch(code) else UNKNOWN_COUNTRY


def _country_code(record: Any) -> str:
    """Return the code in a record: `country.iso_code` (MaxMind, DB-IP), `country_code` or `country` (IPinfo)."""
    if not isinstance(record, dict):
        return ""
    country = record.get("country")
    code = country.get("iso_code") if isinstance(country, dict) else record.get("country_code") or country
    return code.upper() if isinstance(code, str) else ""


class GeoLocator:
    """Gives the country of a request, and its address in the form that is stored."""

    def __init__(self, salts: AddressSalts, mode: LiveAddress, geoip: GeoIp) -> None:
        self._salts = salts
        self._mode = mode
        self._geoip = geoip

    def country(self, address: str, headers: Mapping[str, str], proxied: bool) -> str:
        """Return the country from a trusted proxy's header, else from the address."""
        if proxied:
            for name in COUNTRY_HEADERS:
                code = headers.get(name, "").strip().upper()
                if _COUNTRY.fullmatch(code) and code not in _UNKNOWN_COUNTRIES:
                    return code
        return self._geoip.country(address)

    async def stored_address(self, address: str) -> str:
        """Return an address as statistics members contain it. One round trip a day if addresses are hashed."""
        if self._mode == "full":
            return address
        if self._mode == "truncated":
            return truncate_address(address)
        return hmac.digest(await self._salts.get_today(), address.encode(), "sha256").hex()[:HASH_DIGITS]
