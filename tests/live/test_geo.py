"""Where viewers are: countries by a file, addresses as a setting allows, hashes that nobody can undo in the end."""

from __future__ import annotations

import asyncio
import random
import re
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest

from plaza.core.clock import ManualClock
from plaza.core.errors import SettingError
from plaza.core.valkey import Valkey
from plaza.live.address_salts import AddressSalts
from plaza.live.geo import GeoIp, GeoLocator, truncated
from plaza.live.keys import LIVE_SALT
from tests.servers import running_server
from tests.timeouts import connect_for_test
from tests.waiting import eventually

FILE = """network,country
# ours
203.0.113.0/24,nz
203.0.113.64/26,AU
203.0.113.70/32,FR

2001:db8::/32,DE
2001:db8:1::/48,AT
"""


def test_a_file_gives_the_country_of_the_smallest_network(tmp_path: Path) -> None:
    path = tmp_path / "geo.csv"
    path.write_text(FILE)
    country = GeoIp.read(path).country
    assert [country(f"203.0.113.{n}") for n in (0, 63, 64, 69, 70, 71, 127, 128, 255)] == [
        "NZ",
        "NZ",
        "AU",
        "AU",
        "FR",
        "AU",
        "AU",
        "NZ",
        "NZ",
    ]
    assert (country("203.0.112.255"), country("203.0.114.0"), country("local")) == ("ZZ", "ZZ", "ZZ")
    assert (country("2001:db8::1"), country("2001:db8:1::1"), country("2001:db9::")) == ("DE", "AT", "ZZ")


def test_look_ups_equal_a_search_through_all_networks() -> None:
    dice = random.Random(7)
    networks = {}
    for _ in range(300):
        base, bits = dice.getrandbits(16), dice.randint(16, 32)
        network = ip_network((int(ip_address("10.0.0.0")) + base, bits), strict=False)
        networks[str(network)] = f"{chr(65 + dice.randrange(26))}{chr(65 + dice.randrange(26))}"
    geoip = GeoIp(networks)
    parsed = [(ip_network(text), country) for text, country in networks.items()]
    for _ in range(2000):
        address = ip_address(int(ip_address("10.0.0.0")) + dice.getrandbits(16))
        around = [(network.prefixlen, country) for network, country in parsed if address in network]
        assert geoip.country(str(address)) == (max(around)[1] if around else "ZZ")


@pytest.mark.parametrize("line", ["nonsense,NZ", "203.0.113.0/24", "203.0.113.0/24,New Zealand", "300.0.0.0/8,NZ"])
def test_a_line_that_makes_no_sense_is_refused_with_its_number(tmp_path: Path, line: str) -> None:
    path = tmp_path / "geo.csv"
    path.write_text(f"network,country\n{line}\n")
    with pytest.raises(SettingError, match="line 2"):
        GeoIp.read(path)


def test_a_file_that_is_not_there_is_said_at_start(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="PLAZA_GEOIP"):
        GeoIp.read(tmp_path / "none.csv")


def test_truncating_leaves_the_network() -> None:
    assert truncated("203.0.113.77") == "203.0.113.0"
    assert truncated("2001:db8:aa:bb::1") == "2001:db8:aa::"
    assert truncated("local") == "local"


def test_only_a_proxys_word_counts_and_only_if_it_is_a_country(valkey: Valkey, clock: ManualClock) -> None:
    places = GeoLocator(AddressSalts(valkey, clock), "full", GeoIp({"203.0.113.0/24": "AU"}))
    assert places.country("203.0.113.1", {"cf-ipcountry": "nz"}, True) == "NZ"
    assert places.country("203.0.113.1", {"x-country-code": "FR"}, True) == "FR"
    assert places.country("203.0.113.1", {"cf-ipcountry": "nz"}, False) == "AU"
    for nonsense in ("XX", "T1", "", "N#Z", "New Zealand"):
        assert places.country("203.0.113.1", {"cf-ipcountry": nonsense}, True) == "AU"


async def test_hashed_addresses_agree_for_a_day_and_the_salt_dies_after_two(
    valkey: Valkey, clock: ManualClock, redis_client: Any
) -> None:
    one, other = (GeoLocator(AddressSalts(valkey, clock), "hashed", GeoIp({})) for _ in range(2))
    first = await one.stored("203.0.113.77")
    assert first == await other.stored("203.0.113.77"), "processes agree"
    assert first != await one.stored("203.0.113.78")
    assert re.fullmatch("[0-9a-f]{16}", first)
    (salt,) = [name async for name in redis_client.scan_iter("live:salt:*")]
    assert salt == LIVE_SALT("2023-11-14")
    assert 172_700 < await redis_client.ttl(salt) <= 172_800
    clock.advance(days=1)
    assert await one.stored("203.0.113.77") != first, "another day, another salt"


async def test_full_and_truncated_addresses_cost_nothing(valkey: Valkey, clock: ManualClock) -> None:
    assert await GeoLocator(AddressSalts(valkey, clock), "full", GeoIp({})).stored("203.0.113.77") == "203.0.113.77"
    assert await GeoLocator(AddressSalts(valkey, clock), "truncated", GeoIp({})).stored("203.0.113.77") == "203.0.113.0"


async def test_no_file_holds_a_salt_that_is_over(clock: ManualClock) -> None:
    with running_server("--appendonly", "yes") as place:
        async with await connect_for_test(place.url) as valkey:
            salts = AddressSalts(valkey, clock)
            old = (await salts.today()).hex()
            clock.advance(days=2)
            new = (await salts.today()).hex()
            await valkey.call("PEXPIRE", LIVE_SALT("2023-11-14"), 1)
            await asyncio.sleep(0.01)
            assert await salts.destroy() == 1

            def forgotten() -> bool:
                try:
                    text = b"".join(file.read_bytes() for file in place.folder.glob("appendonlydir/*.aof*"))
                except FileNotFoundError:  # Valkey has put another in its place since they were listed
                    return False
                return new.encode() in text and old.encode() not in text

            await eventually(forgotten)
