"""The embedded Valkey: killed, with truncated files, started twice, on a path that is too long."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import psutil
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from plaza.core.embedded_valkey import DamagedData, EmbeddedValkey, ValkeyFailed, running_url
from plaza.core.process.child import WATCH, Backoff, Watch
from plaza.core.valkey import NotReady
from tests.processes import alive, command_line
from tests.timeouts import connect_for_test, within_time_limit
from tests.waiting import eventually as until

# A process with an embedded Valkey, to be killed.
PARENT = """
import asyncio, sys
from pathlib import Path
from plaza.core.embedded_valkey import EmbeddedValkey

async def main():
    async with EmbeddedValkey(Path(sys.argv[1]), watch=sys.argv[2]) as valkey:
        print(valkey.process.pid, flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


def redis_client(valkey: EmbeddedValkey) -> redis.Redis:
    """A plain redis-py client on the address that Valkey was given."""
    parts, retry = urlsplit(valkey.url), Retry(NoBackoff(), 0)
    if parts.scheme == "unix":
        return redis.Redis(unix_socket_path=unquote(parts.path), decode_responses=True, retry=retry)
    assert parts.port is not None
    return redis.Redis(port=parts.port, password=parts.password, decode_responses=True, retry=retry)


def responds(valkey: EmbeddedValkey) -> bool:
    with contextlib.suppress(redis.RedisError), redis_client(valkey) as client:
        return bool(client.ping())
    return False


async def fill(folder: Path, count: int = 100) -> Path:
    """Write some keys and stop. Returns the path of the append-only file."""
    async with EmbeddedValkey(folder) as valkey:
        with redis_client(valkey) as client:
            for i in range(count):
                client.set(f"k{i}", "v" * 50)
    return folder / "valkey" / "appendonlydir" / "appendonly.aof.1.incr.aof"


async def count_keys(folder: Path) -> int:
    async with EmbeddedValkey(folder) as valkey:
        with redis_client(valkey) as client:
            return int(str(client.dbsize()))


async def test_data_is_there_after_a_clean_stop_and_start(tmp_path: Path) -> None:
    await fill(tmp_path, 100)
    assert await count_keys(tmp_path) == 100


async def test_only_its_user_can_open_the_socket(tmp_path: Path) -> None:
    folder = tmp_path / "var"
    async with EmbeddedValkey(folder) as valkey:
        assert valkey.url == f"unix://{folder}/valkey.sock"
        for path in (folder, folder / "valkey.sock", folder / "valkey"):
            assert path.stat().st_mode & 0o777 == 0o700
        with redis_client(valkey) as client:
            assert client.config_get("port")["port"] == "0"


async def test_a_directory_with_spaces_and_quotes_works(tmp_path: Path) -> None:
    assert await count_keys((await fill(tmp_path / 'my "own" dåta %41')).parents[2]) == 100


async def test_a_path_too_long_for_a_socket_gets_a_loopback_port_with_a_password(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    async with EmbeddedValkey(folder) as valkey:
        parts = urlsplit(valkey.url)
        assert parts.hostname == "127.0.0.1"
        assert parts.password
        assert parts.password not in " ".join(_process(valkey).cmdline())
        assert (folder / "valkey.url").stat().st_mode & 0o777 == 0o600
        assert (folder / "valkey" / "valkey.conf").stat().st_mode & 0o777 == 0o600
        with (
            redis.Redis(port=parts.port or 0, retry=Retry(NoBackoff(), 0)) as anonymous,
            pytest.raises(redis.AuthenticationError),
        ):
            anonymous.ping()
        assert responds(valkey)
        first = valkey.url
        _process(valkey).kill()
        await until(lambda: responds(valkey))
        assert valkey.url == first, "clients that know the address must find it again"


@pytest.mark.parametrize("fsync", ["everysec", "always"])
async def test_the_fsync_setting_reaches_valkey(tmp_path: Path, fsync: str) -> None:
    async with EmbeddedValkey(tmp_path, fsync=fsync) as valkey:  # type: ignore[arg-type]
        with redis_client(valkey) as client:
            assert client.config_get("appendfsync")["appendfsync"] == fsync
            assert client.config_get("appendonly")["appendonly"] == "yes"


async def test_a_killed_valkey_restarts_with_its_data(tmp_path: Path) -> None:
    async with EmbeddedValkey(tmp_path) as valkey:
        for round_ in range(3):
            with redis_client(valkey) as client:
                client.set(f"round{round_}", "value")
                client.execute_command("WAITAOF", 1, 0, 20_000)  # a busy disk may write up to two seconds later
            dead = _process(valkey)
            dead.kill()
            await until(lambda pid=dead.pid: _pid(valkey) != pid and responds(valkey))  # type: ignore[misc]
        with redis_client(valkey) as client:
            assert client.dbsize() == 3


# Linux supports both.
@pytest.mark.parametrize("watch", sorted({WATCH, "pipe"}))
async def test_it_stops_with_a_killed_parent_and_loses_nothing(tmp_path: Path, watch: Watch) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, str(tmp_path), watch, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    child = psutil.Process(int(await parent.stdout.readline()))
    processes = [child, *child.children()]
    with redis.Redis(unix_socket_path=str(tmp_path / "valkey.sock")) as client:
        client.set("last", "word")
    parent.kill()
    await parent.wait()
    await until(lambda: not any(map(alive, processes)))
    assert await count_keys(tmp_path) == 1


async def test_a_second_plaza_in_the_same_directory_is_refused_and_names_the_first(tmp_path: Path) -> None:
    async with EmbeddedValkey(tmp_path) as first:
        with pytest.raises(ValkeyFailed, match=f"already running in {tmp_path} .process {os.getpid()}."):
            await EmbeddedValkey(tmp_path).start()
        assert responds(first), "the first keeps running"
        assert await running_url(tmp_path) == first.url
    assert await count_keys(tmp_path) == 0, "the directory is free after the first stopped"


async def test_a_new_plaza_waits_for_the_valkey_of_a_killed_one(tmp_path: Path) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, str(tmp_path), WATCH, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    orphan = psutil.Process(int(await parent.stdout.readline()))
    orphan.suspend()  # so that it does not notice the death of its parent
    parent.kill()
    await parent.wait()
    valkey = EmbeddedValkey(tmp_path)
    starting = asyncio.create_task(valkey.start())
    await asyncio.sleep(0.3)
    assert not starting.done(), "two Valkeys would write to one file"
    orphan.resume()
    await starting
    assert not alive(orphan)
    await valkey.stop()


async def test_files_left_by_a_killed_plaza_are_ignored(tmp_path: Path) -> None:
    await fill(tmp_path, 5)
    (tmp_path / "lock").write_text("1\n")  # a running process without the lock
    (tmp_path / "valkey.sock").touch()
    (tmp_path / "valkey.url").write_text(f"unix://{tmp_path}/valkey.sock")
    assert await running_url(tmp_path) is None
    assert await count_keys(tmp_path) == 5


async def test_a_truncated_tail_loses_only_the_incomplete_command(tmp_path: Path) -> None:
    file = await fill(tmp_path, 100)
    os.truncate(file, file.stat().st_size - 7)
    assert await count_keys(tmp_path) == 99
    assert await count_keys(tmp_path) == 99, "the file is valid again"


async def test_a_tail_of_zeros_loses_nothing(tmp_path: Path) -> None:
    file = await fill(tmp_path, 100)
    with file.open("ab") as out:
        out.write(b"\0" * 200_000)
    assert await count_keys(tmp_path) == 100


async def test_a_truncated_older_file_loses_only_the_incomplete_command(tmp_path: Path) -> None:
    """A power loss during a rewrite can leave this state."""
    file = await fill(tmp_path, 100)
    newer = file.with_name("appendonly.aof.2.incr.aof")
    newer.write_bytes(b"*3\r\n$3\r\nSET\r\n$5\r\nnewer\r\n$1\r\nv\r\n")
    with file.with_name("appendonly.aof.manifest").open("a") as manifest:
        manifest.write("file appendonly.aof.2.incr.aof seq 2 type i\n")
    os.truncate(file, file.stat().st_size - 7)
    assert await count_keys(tmp_path) == 100


async def test_damage_in_the_middle_is_reported_and_nothing_is_deleted(tmp_path: Path) -> None:
    file = await fill(tmp_path, 100)
    _damage(file)
    before = file.read_bytes()
    with pytest.raises(DamagedData, match=r"Bad file format reading the append only file appendonly.aof.1.incr.aof\."):
        await EmbeddedValkey(tmp_path).start()
    assert file.read_bytes() == before
    assert not _processes_in(tmp_path)


async def test_a_missing_manifest_is_not_treated_as_a_first_start(tmp_path: Path) -> None:
    file = await fill(tmp_path, 100)
    manifest = file.with_name("appendonly.aof.manifest")
    text = manifest.read_text()
    manifest.unlink()
    with pytest.raises(DamagedData, match="no manifest"):
        await EmbeddedValkey(tmp_path).start()
    manifest.write_text(text)
    assert await count_keys(tmp_path) == 100


async def test_damage_found_at_a_restart_stops_supervision_with_the_reason(tmp_path: Path) -> None:
    file = await fill(tmp_path, 100)
    async with EmbeddedValkey(tmp_path) as valkey:
        assert valkey.failure is not None
        _damage(file)
        _process(valkey).kill()
        async with within_time_limit():
            reason = await valkey.failure
    assert "Bad file format" in reason
    assert "docs/operations.md" in reason


async def test_an_unusable_directory_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValkeyFailed, match=f"Cannot use the data directory {tmp_path}/file"):
        await EmbeddedValkey(tmp_path / "file").start()


async def test_a_valkey_that_cannot_write_to_its_disk_is_read(tmp_path: Path) -> None:
    async with EmbeddedValkey(tmp_path) as valkey:
        with redis_client(valkey) as client:
            client.set("k", "v")
            (tmp_path / "valkey" / "dump.rdb").mkdir()  # the file cannot be replaced
            client.config_set("save", "3600 1000000")
            client.bgsave()
            await until(lambda: dict(client.info("persistence"))["rdb_last_bgsave_status"] == "err")
            with pytest.raises(redis.ResponseError, match="MISCONF"):
                client.ping()
        assert await running_url(tmp_path) == valkey.url
        async with await connect_for_test(valkey.url) as reader:
            assert await reader.call("GET", "k") == "v"
            with pytest.raises(NotReady, match="MISCONF"):
                await reader.call("SET", "k", "w")


async def test_stop_returns_when_the_process_is_gone(tmp_path: Path) -> None:
    valkey = EmbeddedValkey(tmp_path)
    await valkey.start()
    process = _process(valkey)
    await valkey.stop()
    assert not alive(process)
    assert sorted(os.listdir(tmp_path)) == ["lock", "valkey"]
    log = (tmp_path / "valkey" / "valkey.log").read_text()
    assert "Calling fsync() on the AOF file" in log


async def test_stop_during_a_restart_leaves_no_process(tmp_path: Path) -> None:
    for delay in (0.0, 0.03, 0.06, 0.09, 0.12):
        valkey = EmbeddedValkey(tmp_path)
        await valkey.start()
        _process(valkey).send_signal(signal.SIGKILL)
        await asyncio.sleep(delay)
        await valkey.stop()
        assert not _processes_in(tmp_path)


def test_the_wait_between_starts_grows_and_resets_after_a_healthy_run() -> None:
    backoff = Backoff(first_seconds=1, max_seconds=4, healthy_seconds=60)
    assert [backoff.wait_after(0) for _ in range(4)] == [1, 2, 4, 4]
    assert backoff.wait_after(61) == 1


def _write_many(valkey: EmbeddedValkey, count: int) -> None:
    with redis_client(valkey) as client:
        for i in range(count):
            client.set(f"during{i}", "v")


def _pid(valkey: EmbeddedValkey) -> int:
    assert valkey.process is not None
    return valkey.process.pid


def _process(valkey: EmbeddedValkey) -> psutil.Process:
    return psutil.Process(_pid(valkey))


def _processes_in(folder: Path) -> list[psutil.Process]:
    """Our children that have to do with this folder; the test session has servers of its own."""
    return [process for process in psutil.Process().children(recursive=True) if str(folder) in command_line(process)]


def _damage(file: Path) -> None:
    with file.open("r+b") as out:
        out.seek(file.stat().st_size // 2)
        out.write(b"XXXXXXXXXXXXXXXX")
