"""A command finds the Valkey of a server that runs, starts or ends in its directory, or has one of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from plaza import valkey_discovery
from plaza.core.embedded_valkey import EmbeddedValkey, Taken
from plaza.core.process.data_dir_lock import DirectoryLock
from plaza.core.settings import Settings
from plaza.valkey_discovery import at_hand, servers_url
from tests.waiting import eventually


class Starting(EmbeddedValkey):
    """The Valkey of a server that has its directory and nothing else, until it may go on."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir)
        self.go_on = asyncio.Event()

    async def _start_process(self) -> None:
        await self.go_on.wait()
        await super()._start_process()


@contextlib.asynccontextmanager
async def starting(data_dir: Path) -> AsyncIterator[tuple[Starting, asyncio.Task[None]]]:
    server = Starting(data_dir)
    start = asyncio.create_task(server.start())
    await eventually(lambda: DirectoryLock(data_dir / "lock").owner() == os.getpid())
    try:
        yield server, start
    finally:
        start.cancel()
        await asyncio.wait([start])
        await server.stop()


async def finds(data_dir: Path) -> str:
    async with at_hand(Settings(data_dir=data_dir)) as settings:
        return settings.valkey_url


async def test_a_command_given_while_a_server_starts_waits_for_it_and_uses_its_valkey(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(valkey_discovery, "LOOK_SECONDS", 0.01)
    async with starting(tmp_path) as (server, start):
        command = asyncio.create_task(finds(tmp_path))
        done, _ = await asyncio.wait([command], timeout=0.1)  # time to give up; one that waits is never done here
        server.go_on.set()
        assert await command == server.url
        await start
        assert not done


async def test_a_command_given_while_a_server_starts_in_vain_has_a_valkey_of_its_own(tmp_path: Path) -> None:
    async with starting(tmp_path) as (server, start):
        command = asyncio.create_task(finds(tmp_path))
        await asyncio.sleep(0)
        start.cancel()
        assert await command
    assert server.process is None


async def test_a_server_that_never_answers_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(valkey_discovery, "STARTING_SECONDS", 0.05)
    async with starting(tmp_path):
        with pytest.raises(Taken, match=rf"already running in {tmp_path} .*has not answered for 0.05 s"):
            await finds(tmp_path)


async def test_a_server_that_starts_while_a_command_runs_waits_for_its_end(tmp_path: Path) -> None:
    async with at_hand(Settings(data_dir=tmp_path)):
        server = EmbeddedValkey(tmp_path)
        start = asyncio.create_task(server.start())
        done, _ = await asyncio.wait([start], timeout=0.1)
    await start
    await server.stop()
    assert not done


async def test_a_worker_waits_for_a_server_that_starts_and_for_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(valkey_discovery, "LOOK_SECONDS", 0.01)
    assert await servers_url(tmp_path) is None
    somebody = await asyncio.create_subprocess_exec(sys.executable, "-c", "input()", stdin=asyncio.subprocess.PIPE)
    (tmp_path / "lock").write_text(f"{somebody.pid}\n")  # who is there, and has not said where yet
    waiting = asyncio.create_task(servers_url(tmp_path))
    done, _ = await asyncio.wait([waiting], timeout=0.1)
    async with EmbeddedValkey(tmp_path / "elsewhere") as valkey:
        (tmp_path / "valkey.url").write_text(valkey.url)
        assert await waiting == valkey.url
    assert not done
    monkeypatch.setattr(valkey_discovery, "STARTING_SECONDS", 0.05)
    assert await servers_url(tmp_path) is None
    somebody.kill()
    await somebody.wait()
