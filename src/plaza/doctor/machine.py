"""Checks the machine: versions, the data directory with its files, the disk, the clock, memory and the port."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import sqlite3
import stat
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Final

import plaza
from plaza.backup.progress import UNFINISHED_RESTORE
from plaza.core.embedded_valkey import is_owned
from plaza.core.errors import OperatorError
from plaza.core.process.data_dir_lock import DirectoryLock
from plaza.core.process.listening_socket import listen, local_url
from plaza.core.process.machine_memory import default_maxmemory, memory_bytes
from plaza.core.settings import SECRET_BYTES, Settings, variable
from plaza.doctor.check import CheckResult, ok, warning, wrong

# What has secrets or texts of users in the data directory, and must be readable by its owner only.
PRIVATE: Final = (
    "api-key",
    "jwt-secret",
    "data-key",
    "plaza.sqlite",
    "plaza.sqlite-wal",
    "plaza.sqlite-shm",
    "valkey",
    "valkey.url",
    "valkey.sock",
    "mail",
    "media",
)
SECRETS: Final = ("api_key", "jwt_secret", "data_key")

# Below the first, the next writes fail; below the second, the next rewrite of a file may.
DISK_FULL_BYTES: Final = 100_000_000
DISK_LOW_BYTES: Final = 1_000_000_000
# A file may be this much newer than the clock: file systems of other machines have clocks of their own.
MAX_FUTURE_SECONDS: Final = 60.0
# Of a server on this machine, which may be busy.
ANSWER_SECONDS: Final = 5.0


def check_versions() -> CheckResult:
    """Show the versions that a report of an error should name."""
    return ok(
        "versions", f"Plaza {plaza.__version__}, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}."
    )


def check_data_dir(data_dir: Path) -> CheckResult:
    """Check that the data directory exists, that its files can be written, and that no other user can replace them."""
    name = "data directory"
    if not data_dir.is_dir():
        return wrong(name, f"{data_dir} does not exist.", "Set PLAZA_DATA_DIR; `plaza serve` creates a new one.")
    if not os.access(data_dir, os.R_OK | os.W_OK | os.X_OK):
        return wrong(name, f"{data_dir} cannot be written by this user.", _write_fix(data_dir))
    if (data_dir / UNFINISHED_RESTORE).exists():
        return wrong(
            name, f"A restore into {data_dir} has not ended.", "Wait for it; if it failed, repeat it with --replace."
        )
    mode = data_dir.stat().st_mode
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        return wrong(name, f"{data_dir} can be written by other users ({_octal(mode)}).", f"chmod go-w {data_dir}")
    return ok(name, f"{data_dir}, mode {_octal(mode)}.")


def _write_fix(data_dir: Path) -> str:
    if os.statvfs(data_dir).f_flag & os.ST_RDONLY:
        return "Its file system is read-only: see the kernel's log, then mount it for writing."
    is_own = data_dir.stat().st_uid == os.geteuid()
    return f"chmod u+rwx {data_dir}" if is_own else f"Run this as {_owner(data_dir)}."


def check_permissions(data_dir: Path) -> CheckResult:
    """Check mode and owner of the files that are private. Reads only the names at the top."""
    name = "permissions"
    files = _private_files(data_dir)
    foreign = [path for path, file in files.items() if file.st_uid != data_dir.stat().st_uid]
    if foreign:
        owner = _owner(data_dir)
        return wrong(
            name, f"{_names(foreign)} belong to another user than the directory.", f"chown -R {owner} {data_dir}"
        )
    readable = [path for path, file in files.items() if file.st_mode & 0o077]
    if readable:
        paths = " ".join(map(str, readable))
        return wrong(name, f"Other users may read {_names(readable)}.", f"chmod go= {paths}")
    return ok(name, f"{len(files)} private files and folders, of {_owner(data_dir)} only.")


def check_secrets(settings: Settings, data_dir: Path) -> CheckResult:
    """Check that each secret is set or stored, and long enough. A start would silently replace a lost one."""
    name = "secrets"
    stored = [secret for secret in SECRETS if not getattr(settings, secret)]
    files = {secret: data_dir / secret.replace("_", "-") for secret in stored}
    for secret, file in files.items():
        if file.exists() and any(len(line) < SECRET_BYTES for line in file.read_bytes().split() or [b""]):
            fix = f"Restore it from a backup, or set {variable(secret)}."
            return wrong(name, f"{file} is shorter than {SECRET_BYTES} bytes.", fix)
    has_run = (data_dir / "plaza.sqlite").exists() or (data_dir / "valkey").exists()
    if has_run and "data_key" in files and not files["data_key"].exists():
        fix = "Restore it from a backup before the next start, which would make a new one."
        return wrong(name, f"{files['data_key']} is lost: stored secrets and identity numbers cannot be read.", fix)
    return ok(
        name, f"{len(SECRETS) - len(stored)} set, {sum(f.exists() for f in files.values())} in the data directory."
    )


def check_disk(data_dir: Path) -> CheckResult:
    """Check the free space for data, and for the next rewrite of the append-only file."""
    usage = shutil.disk_usage(data_dir if data_dir.is_dir() else data_dir.parent)
    return judge_disk(data_dir, usage.free, sum(_sizes(data_dir / "valkey" / "appendonlydir")))


def judge_disk(data_dir: Path, free_bytes: int, valkey_bytes: int) -> CheckResult:
    """Compare the free space with what is needed: a rewrite writes as much as Valkey has stored, beside it."""
    text = f"{free_bytes / 1e9:,.1f} GB free on the disk of {data_dir}."
    fix = "Free some space, or move the data directory."
    if free_bytes < DISK_FULL_BYTES:
        return wrong("disk", text, fix)
    if free_bytes < max(DISK_LOW_BYTES, valkey_bytes):
        return warning(
            "disk", f"{text} Valkey's file has {valkey_bytes / 1e9:,.1f} GB and is rewritten beside it.", fix
        )
    return ok("disk", text)


def check_clock(data_dir: Path) -> CheckResult:
    """Check that no file of the data directory is from the future: then the clock has been set back, or is wrong."""
    ahead = max((file.st_mtime for file in _private_files(data_dir).values()), default=0.0) - time.time()
    if ahead > MAX_FUTURE_SECONDS:
        return wrong("clock", f"A file is {ahead:,.0f} s newer than the clock.", "Set the clock: enable NTP.")
    return ok("clock", f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime())} UTC, not before the newest file.")


def check_memory(settings: Settings) -> CheckResult:
    """Check the limit of the embedded Valkey against the memory of the machine or container."""
    available = memory_bytes()
    limit = settings.maxmemory_bytes or default_maxmemory()
    text = f"The embedded Valkey may use {limit / 1e6:,.0f} MB of {available / 1e6:,.0f} MB."
    if limit > available * 9 // 10:
        fix = f"Set PLAZA_VALKEY_MAXMEMORY to at most {available * 3 // 4 // 1024**2}mb."
        return wrong("memory limit", f"{text} The kernel would kill it.", fix)
    return ok("memory limit", text)


def check_server(settings: Settings, data_dir: Path) -> CheckResult:
    """Say whether a server runs in the data directory or at the port; if none does, check that the port is free."""
    if is_owned(data_dir):
        return ok("server", f"Process {DirectoryLock(data_dir / 'lock').owner()} runs in this data directory.")
    try:
        with listen(settings.host, settings.port) as sock:
            return ok("server", f"None runs; {local_url(sock).removeprefix('http://')} is free.")
    except OperatorError as error:
        if _answers(settings):  # with an external Valkey, the data directory does not tell
            return ok("server", f"It responds on port {settings.port}.")
        return wrong("server", "None runs in this data directory, and none could start.", str(error))


def _answers(settings: Settings) -> bool:
    """Whether a Plaza responds on the port of the settings."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104
    connection = HTTPConnection(host, settings.port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", f"{settings.mount_path}/healthz")
        return connection.getresponse().read() == b'{"status":"ok"}'
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def _private_files(data_dir: Path) -> dict[Path, os.stat_result]:
    found = {}
    for name in PRIVATE:
        with contextlib.suppress(FileNotFoundError):  # it is not needed, or a server has just removed it
            found[data_dir / name] = (data_dir / name).stat()
    return found


def _sizes(folder: Path) -> Iterator[int]:
    for path in folder.glob("*"):
        with contextlib.suppress(FileNotFoundError):  # a rewrite has just replaced it
            yield path.stat().st_size


def _owner(path: Path) -> str:
    try:
        return path.owner()
    except KeyError:  # a user without a name
        return str(path.stat().st_uid)


def _octal(mode: int) -> str:
    return f"{stat.S_IMODE(mode):o}"


def _names(paths: list[Path]) -> str:
    return ", ".join(path.name for path in paths)
