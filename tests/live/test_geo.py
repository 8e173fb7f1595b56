"""Countries from a GeoIP file or a proxy; addresses stored as the setting says; salts that are destroyed."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from mmdb_writer import MMDBWriter
from netaddr import IPSet

from plaza.core.clock import ManualClock
from plaza.core.errors import SettingError
from plaza.core.valkey import Valkey
from plaza.live.address_salts import AddressSalts
from plaza.live.geo import GeoIp, GeoLocator
from plaza.live.keys import LIVE_SALT
from tests.servers import running_server
from tests.timeouts import connect_for_test
from tests.waiting import eventually


def write_database(path: Path, networks: dict[str, dict[str, Any]], ip_version: int = 6) -> Path:
    """Write a MaxMind DB file, as GeoIP providers publish it."""
    writer = MMDBWriter(ip_version, "Test-Country", ipv4_compatible=ip_version == 6)
    for network, record in networks.items():
        writer.insert_network(IPSet([network]), record)
    writer.to_db_file(str(path))
    return path


def in_country(code: str) -> dict[str, Any]:
    return {"country": {"iso_code": code}}


def test_a_database_gives_the_country_of_the_smallest_network(tmp_path: Path) -> None:
    networks = {
        "203.0.113.0/24": in_country("NZ"),
        "203.0.113.64/26": in_country("AU"),
        "203.0.113.70/32": in_country("FR"),
        "2001:db8::/32": in_country("DE"),
        "2001:db8:1::/48": in_country("AT"),
    }
    country = GeoIp.open(write_database(tmp_path / "geo.mmdb", networks)).country
    expected = {0: "NZ", 63: "NZ", 64: "AU", 69: "AU", 70: "FR", 71: "AU", 127: "AU", 128: "NZ", 255: "NZ"}
    assert {n: country(f"203.0.113.{n}") for n in expected} == expected
    assert (country("203.0.112.255"), country("203.0.114.0"), country("local")) == ("ZZ", "ZZ", "ZZ")
    assert (country("2001:db8::1"), country("2001:db8:1::1"), country("2001:db9::")) == ("DE", "AT", "ZZ")


def test_records_of_several_providers_are_understood_and_others_are_unknown(tmp_path: Path) -> None:
    networks: dict[str, dict[str, Any]] = {
        "203.0.113.0/28": {"country_code": "nz"},
        "203.0.113.16/28": {"country": "AU"},
        "203.0.113.32/28": {"city": "Wellington"},
        "203.0.113.48/28": {"country": {"iso_code": "New Zealand"}},
        "203.0.113.64/28": {"country": {"geoname_id": 7}},
    }
    country = GeoIp.open(write_database(tmp_path / "geo.mmdb", networks, ip_version=4)).country
    assert [country(f"203.0.113.{n}") for n in (1, 17, 33, 49, 65)] == ["NZ", "AU", "ZZ", "ZZ", "ZZ"]
    assert country("2001:db8::1") == "ZZ", "the file has IPv4 only"


def test_a_file_that_is_missing_or_no_database_is_refused_at_start(tmp_path: Path) -> None:
    csv = tmp_path / "geo.csv"
    csv.write_text("network,country\n203.0.113.0/24,NZ\n")
    for path in (csv, tmp_path / "none.mmdb", tmp_path):
        with pytest.raises(SettingError, match="PLAZA_GEOIP"):
            GeoIp.open(path)


def test_a_country_header_counts_from_a_proxy_and_only_if_it_is_a_country(
    valkey: Valkey, clock: ManualClock, tmp_path: Path
) -> None:
    geoip = GeoIp.open(write_database(tmp_path / "geo.mmdb", {"203.0.113.0/24": in_country("AU")}))
    locator = GeoLocator(AddressSalts(valkey, clock), "full", geoip)
    assert locator.country("203.0.113.1", {"cf-ipcountry": "nz"}, True) == "NZ"
    assert locator.country("203.0.113.1", {"x-country-code": "FR"}, True) == "FR"
    assert locator.country("203.0.113.1", {"cf-ipcountry": "nz"}, False) == "AU"
    for nonsense in ("XX", "T1", "", "N#Z", "New Zealand"):
        assert locator.country("203.0.113.1", {"cf-ipcountry": nonsense}, True) == "AU"


async def test_hashed_addresses_agree_for_a_day_and_the_salt_expires_after_two(
    valkey: Valkey, clock: ManualClock, redis_client: Any
) -> None:
    one, other = (GeoLocator(AddressSalts(valkey, clock), "hashed", GeoIp()) for _ in range(2))
    first = await one.stored_address("203.0.113.77")
    assert first == await other.stored_address("203.0.113.77"), "processes agree"
    assert first != await one.stored_address("203.0.113.78")
    assert re.fullmatch("[0-9a-f]{16}", first)
    (salt,) = [name async for name in redis_client.scan_iter("live:salt:*")]
    assert salt == LIVE_SALT("2023-11-14")
    assert 172_700 < await redis_client.ttl(salt) <= 172_800
    clock.advance(days=1)
    assert await one.stored_address("203.0.113.77") != first, "every day has its own salt"


async def test_full_and_truncated_addresses_need_no_salt(valkey: Valkey, clock: ManualClock) -> None:
    assert (
        await GeoLocator(AddressSalts(valkey, clock), "full", GeoIp()).stored_address("203.0.113.77") == "203.0.113.77"
    )
    assert (
        await GeoLocator(AddressSalts(valkey, clock), "truncated", GeoIp()).stored_address("203.0.113.77")
        == "203.0.113.0"
    )


async def test_an_expired_salt_is_in_no_append_only_file(clock: ManualClock) -> None:
    with running_server("--appendonly", "yes") as place:
        async with await connect_for_test(place.url) as valkey:
            salts = AddressSalts(valkey, clock)
            old = (await salts.get_today()).hex()
            clock.advance(days=2)
            new = (await salts.get_today()).hex()
            await valkey.call("PEXPIRE", LIVE_SALT("2023-11-14"), 1)
            await asyncio.sleep(0.01)
            assert await salts.destroy_old() == 1

            def salt_is_gone() -> bool:
                try:
                    text = b"".join(file.read_bytes() for file in place.folder.glob("appendonlydir/*.aof*"))
                except FileNotFoundError:  # Valkey replaced the file after it was listed
                    return False
                return new.encode() in text and old.encode() not in text

            await eventually(salt_is_gone)
