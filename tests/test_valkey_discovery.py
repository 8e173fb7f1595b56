"""A command uses the Valkey of a server that runs, starts or stops in its directory, or starts its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from plaza import valkey_discovery
from plaza.core.embedded_valkey import DataDirInUse, EmbeddedValkey
from plaza.core.process.data_dir_lock import DirectoryLock
from plaza.core.settings import Settings
from plaza.valkey_discovery import find_valkey, wait_for_server
from tests.waiting import eventually


class BlockedStart(EmbeddedValkey):
    """The Valkey of a server that has locked its directory and starts when `go_on` is set."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir)
        self.go_on = asyncio.Event()

    async def _start_process(self) -> None:
        await self.go_on.wait()
        await super()._start_process()


@contextlib.asynccontextmanager
async def starting(data_dir: Path) -> AsyncIterator[tuple[BlockedStart, asyncio.Task[None]]]:
    server = BlockedStart(data_dir)
    start = asyncio.create_task(server.start())
    await eventually(lambda: DirectoryLock(data_dir / "lock").owner() == os.getpid())
    try:
        yield server, start
    finally:
        start.cancel()
        await asyncio.wait([start])
        await server.stop()


async def found_url(data_dir: Path) -> str:
    async with find_valkey(Settings(data_dir=data_dir)) as settings:
        return settings.valkey_url


async def test_a_command_waits_for_a_starting_server_and_uses_its_valkey(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(valkey_discovery, "POLL_SECONDS", 0.01)
    async with starting(tmp_path) as (server, start):
        command = asyncio.create_task(found_url(tmp_path))
        done, _ = await asyncio.wait([command], timeout=0.1)  # a waiting command is never done here
        server.go_on.set()
        assert await command == server.url
        await start
        assert not done


async def test_a_command_starts_its_own_valkey_when_a_server_fails_to_start(tmp_path: Path) -> None:
    async with starting(tmp_path) as (server, start):
        command = asyncio.create_task(found_url(tmp_path))
        await asyncio.sleep(0)
        start.cancel()
        assert await command
    assert server.process is None


async def test_the_wait_for_a_server_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(valkey_discovery, "SERVER_START_SECONDS", 0.05)
    async with starting(tmp_path):
        with pytest.raises(DataDirInUse, match=rf"already running in {tmp_path} .*has not responded for 0.05 s"):
            await found_url(tmp_path)


async def test_a_starting_server_waits_for_the_end_of_a_command(tmp_path: Path) -> None:
    async with find_valkey(Settings(data_dir=tmp_path)):
        server = EmbeddedValkey(tmp_path)
        start = asyncio.create_task(server.start())
        done, _ = await asyncio.wait([start], timeout=0.1)
    await start
    await server.stop()
    assert not done


async def test_a_worker_waits_only_for_a_starting_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(valkey_discovery, "POLL_SECONDS", 0.01)
    assert await wait_for_server(tmp_path) is None
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", "input()", stdin=asyncio.subprocess.PIPE)
    (tmp_path / "lock").write_text(f"{other.pid}\n")  # it runs, but has not written its URL yet
    waiting = asyncio.create_task(wait_for_server(tmp_path))
    done, _ = await asyncio.wait([waiting], timeout=0.1)
    async with EmbeddedValkey(tmp_path / "other") as valkey:
        (tmp_path / "valkey.url").write_text(valkey.url)
        assert await waiting == valkey.url
    assert not done
    monkeypatch.setattr(valkey_discovery, "SERVER_START_SECONDS", 0.05)
    assert await wait_for_server(tmp_path) is None
    other.kill()
    await other.wait()
