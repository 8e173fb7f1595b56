"""`plaza` as a real process, with everything it starts, so that tests can see that nothing is left."""

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


def environment(data_dir: Path, **settings: str) -> dict[str, str]:
    """A clean environment with these settings alone, and no demo unless they ask for one."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PLAZA_")}
    return {**clean, "PLAZA_DATA_DIR": str(data_dir), "PLAZA_PORT": "0", "PLAZA_DEMO": "off", **settings}


def plaza(data_dir: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "plaza", *arguments],
        env=environment(data_dir, **settings),
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_SECONDS,
        check=False,
    )


async def run_program(program: str) -> None:
    """Run some Python to its end, beside whatever else goes on."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(program), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIME_LIMIT_SECONDS
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def command_of(process: psutil.Process) -> str:
    """Its command line; none if it is gone since it was listed, or only waits to be forgotten."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return "" if process.status() == psutil.STATUS_ZOMBIE else " ".join(process.cmdline())
    return ""


def heed_signals() -> None:
    """As at a terminal, also where the tests themselves were started in the background, which ignores some signals."""
    for sig in (signal.SIGINT, signal.SIGHUP):
        signal.signal(sig, signal.SIG_DFL)


def _ignore_hang_up() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


class Serving:
    """A running `plaza serve` (or another command that runs until a signal)."""

    def __init__(self, data_dir: Path, *arguments: str, nohup: bool = False, **settings: str) -> None:
        self.data_dir = data_dir
        self.output = data_dir.parent / f"{data_dir.name}-output"
        self.errors = data_dir.parent / f"{data_dir.name}-errors"
        with self.output.open("w") as out, self.errors.open("w") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "plaza", *(arguments or ("serve",))],
                env=environment(data_dir, **settings),
                stdout=out,
                stderr=err,
                start_new_session=True,  # a group of its own, as a terminal gives to what it runs
                preexec_fn=_ignore_hang_up if nohup else heed_signals,
            )
        self.family: list[psutil.Process] = []

    def wait_for(self, text: str) -> Serving:
        until(lambda: text in self.printed() or self.process.poll() is not None)
        assert text in self.printed(), f"it ended with {self.process.poll()}: {self.errors.read_text()}"
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
        """What it started, and what those started, by a word of their command line."""
        started = psutil.Process(self.process.pid).children(recursive=True)
        return [process for process in started if (command := command_of(process)) and word in command]

    def valkey(self) -> psutil.Process:
        (found,) = self.children("valkey-server")
        return found

    def send(self, sig: int, *, group: bool = False) -> None:
        self.family = self.children()
        if group:
            os.killpg(self.process.pid, sig)
        else:
            self.process.send_signal(sig)

    def stop(self, sig: int = signal.SIGTERM, *, group: bool = False) -> int:
        """Send the signal, wait for the end, and see that nothing outlives it."""
        self.send(sig, group=group)
        return self.ended()

    def ended(self) -> int:
        status = self.process.wait(TIME_LIMIT_SECONDS)
        until(lambda: not any(map(alive, self.family)))
        return status


@contextlib.contextmanager
def serving(data_dir: Path, **settings: str) -> Iterator[Serving]:
    """`plaza serve` until the block ends, however it ends."""
    server = Serving(data_dir, nohup=False, **settings)
    try:
        yield server.wait_for("Ctrl-C stops it.")
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()
