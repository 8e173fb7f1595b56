"""Runs `plaza` as a real process, and checks that all its processes are gone afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil

from tests.timeouts import TIME_LIMIT_SECONDS


class SimulatedCrash(Exception):
    """Raised by a test where it simulates that the process is killed."""


def environment(data_dir: Path, **settings: str) -> dict[str, str]:
    """An environment with only these settings, without the demo by default."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PLAZA_")}
    return {
        **clean,
        "PLAZA_DATA_DIR": str(data_dir),
        "PLAZA_PORT": "0",
        "PLAZA_DEMO": "off",
        "PLAZA_QUEUE_MS": "60000",
        **settings,
    }


def plaza(data_dir: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a command and wait for its end."""
    return subprocess.run(
        [sys.executable, "-m", "plaza", *arguments],
        env=environment(data_dir, **settings),
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_SECONDS,
        check=False,
    )


async def run_program(program: str) -> None:
    """Run a Python program and check that it succeeds."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(program), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()


def until(condition: Callable[[], object]) -> None:
    """Wait until a condition is true."""
    deadline = time.monotonic() + TIME_LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.02)


def alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def command_line(process: psutil.Process) -> str:
    """Its name and command line; empty if the process is gone or a zombie."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return "" if process.status() == psutil.STATUS_ZOMBIE else " ".join((process.name(), *process.cmdline()))
    return ""


def default_signals() -> None:
    """Restore default signal handlers; tests started in the background ignore some signals."""
    for sig in (signal.SIGINT, signal.SIGHUP):
        signal.signal(sig, signal.SIG_DFL)


def _ignore_sighup() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


class ServerProcess:
    """A running `plaza serve` (or another command that runs until a signal)."""

    def __init__(
        self, data_dir: Path, *arguments: str, nohup: bool = False, python: Path | None = None, **settings: str
    ) -> None:
        self.data_dir = data_dir
        self.output = data_dir.parent / f"{data_dir.name}-output"
        self.errors = data_dir.parent / f"{data_dir.name}-errors"
        with self.output.open("w") as out, self.errors.open("w") as err:
            self.process = subprocess.Popen(
                [python or sys.executable, "-m", "plaza", *(arguments or ("serve",))],
                env=environment(data_dir, **settings),
                stdout=out,
                stderr=err,
                start_new_session=True,  # its own process group, as from a terminal
                preexec_fn=_ignore_sighup if nohup else default_signals,
            )
        self.descendants: list[psutil.Process] = []

    def wait_for(self, text: str) -> ServerProcess:
        until(lambda: text in self.printed() or self.process.poll() is not None)
        assert text in self.printed(), f"it exited with {self.process.poll()}: {self.errors.read_text()}"
        return self

    def printed(self) -> str:
        return self.output.read_text()

    @property
    def url(self) -> str:
        found = re.search(r"API +(http://\S+)", self.printed())
        assert found
        return found[1]

    def get(self, path: str, **headers: str) -> httpx.Response:
        return httpx.get(self.url + path, headers=headers, timeout=TIME_LIMIT_SECONDS)

    def children(self, word: str = "") -> list[psutil.Process]:
        """Its descendants whose name or command line contains a word."""
        started = psutil.Process(self.process.pid).children(recursive=True)
        return [process for process in started if (command := command_line(process)) and word in command]

    def valkey(self) -> psutil.Process:
        (found,) = self.children("valkey-server")
        return found

    def send(self, sig: int, *, group: bool = False) -> None:
        self.descendants = self.children()
        if group:
            os.killpg(self.process.pid, sig)
        else:
            self.process.send_signal(sig)

    def stop(self, sig: int = signal.SIGTERM, *, group: bool = False) -> int:
        """Send a signal, wait for the end, and check that no descendant is left."""
        self.send(sig, group=group)
        return self.wait()

    def wait(self) -> int:
        """Wait for the end of the process and its descendants. Returns the exit status."""
        status = self.process.wait(TIME_LIMIT_SECONDS)
        until(lambda: not any(map(alive, self.descendants)))
        return status


@contextlib.contextmanager
def serving(data_dir: Path, **settings: str) -> Iterator[ServerProcess]:
    """Run `plaza serve` during the block."""
    server = ServerProcess(data_dir, nohup=False, python=None, **settings)
    try:
        yield server.wait_for("Ctrl-C stops it.")
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()
