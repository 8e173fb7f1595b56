"""A full Valkey refuses writes with 503 and deletes nothing; operators are warned before."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from plaza.core import metrics, valkey_memory
from plaza.core.embedded_valkey import EmbeddedValkey
from plaza.core.errors import SettingError
from plaza.core.settings import Settings
from plaza.core.valkey import NotReady, Valkey, connect

MB = 1024 * 1024


async def test_a_full_valkey_refuses_writes_and_keeps_everything(tmp_path: Path) -> None:
    embedded = EmbeddedValkey(tmp_path, maxmemory_bytes=40 * MB)
    await embedded.start()
    try:
        async with await connect(embedded.url) as valkey:
            with capture_logs() as logs:
                assert "MB of 42 MB used" in await valkey_memory.watch(valkey)
            assert logs == []
            stored = await fill(valkey)
            with capture_logs() as logs:
                await valkey_memory.watch(valkey)
            assert [entry["event"] for entry in logs] == ["valkey_memory_high"]
            assert metrics.VALKEY_MEMORY_LIMIT._value.get() == 40 * MB
            assert await valkey.call("DBSIZE") == stored > 20
            assert len(await valkey.call("GET", "filler:0")) == MB
    finally:
        await embedded.stop()


async def fill(valkey: Valkey) -> int:
    """Store values of a megabyte until Valkey refuses one. Returns how many it took."""
    for stored in range(100):
        try:
            await valkey.call("SET", f"filler:{stored}", "x" * MB)
        except NotReady:
            return stored
    raise AssertionError("Valkey took more than its limit")


@pytest.mark.parametrize(
    ("text", "expected"), [("", None), ("2gb", 2 * 1024 * MB), ("64MB", 64 * MB), ("67108864", 64 * MB)]
)
def test_the_setting_takes_bytes_and_units(text: str, expected: int | None) -> None:
    assert Settings(valkey_maxmemory=text).maxmemory_bytes == expected


@pytest.mark.parametrize("text", ["1mb", "lots", "-1", "2 gb", "0"])
def test_a_wrong_limit_stops_the_start(text: str) -> None:
    with pytest.raises(SettingError, match="PLAZA_VALKEY_MAXMEMORY must be at least 32mb"):
        Settings(valkey_maxmemory=text)
