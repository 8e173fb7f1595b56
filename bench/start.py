"""The CPU time of starts: servers until they are ready, and commands beside a running server.

CPU time is that of all processes together, without Valkey's, so other load on the machine matters little. Starts of two
checkouts take turns:

    python -m bench start
    python -m bench.start --other ../plaza-before
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Final

import psutil

import plaza
from tests.processes import environment, serving

ROUNDS: Final = 5
COMMANDS: Final = (
    "--help",
    "keys",
    "token ana",
    "users role ana admin",
    "api-keys list",
    "doctor",
    "audit",
    "export community.jsonl",
    "import community.jsonl",
    "backup backups",
    "search rebuild",
)
SOURCE: Final = Path(plaza.__file__).parent.parent


def server_seconds(data_dir: Path, **settings: str) -> tuple[float, int]:
    """Start a server, and stop it when it is ready. Returns its CPU seconds and how many processes it has."""
    with serving(data_dir, **settings) as server:
        first = psutil.Process(server.process.pid)
        processes = [first, *(child for child in first.children(recursive=True) if "valkey" not in child.name())]
        seconds = sum(process.cpu_times().user + process.cpu_times().system for process in processes)
        server.stop()
    return seconds, len(processes)


def command_seconds(env: Mapping[str, str], command: str, folder: Path) -> float:
    """Run a command in a folder. Returns its CPU seconds."""
    process = subprocess.Popen(
        [sys.executable, "-m", "plaza", *command.split()],
        env=env,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime


def measure(sources: list[Path], folder: Path) -> dict[str, list[list[float]]]:
    """Measure everything with each source in turns. Returns seconds by what was started, then by source."""
    found: dict[str, list[list[float]]] = {}

    def add(what: str, index: int, seconds: float) -> None:
        found.setdefault(what, [[] for _ in sources])[index].append(seconds)

    for _ in range(ROUNDS):
        for index, source in enumerate(sources):
            path, data_dir = {"PYTHONPATH": str(source)}, folder / f"var{index}"
            for workers in ("1", "2"):
                seconds, count = server_seconds(data_dir, PLAZA_WORKERS=workers, **path)
                add(f"serve, PLAZA_WORKERS={workers}: {count} processes", index, seconds)
    environments = [environment(folder / f"var{index}", PYTHONPATH=str(source)) for index, source in enumerate(sources)]
    with contextlib.ExitStack() as stack:
        for index, source in enumerate(sources):
            stack.enter_context(serving(folder / f"var{index}", PYTHONPATH=str(source)))
        for command in COMMANDS * ROUNDS:
            for index, env in enumerate(environments):
                add(command, index, command_seconds(env, command, folder))
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Measure the CPU time of starts.")
    parser.add_argument("--other", type=Path, help="another checkout to compare with")
    given = parser.parse_args([] if arguments is None else arguments)
    sources = [*([given.other.absolute() / "src"] if given.other else []), SOURCE]
    for source in sources:  # without compiled modules, each start would compile them again
        subprocess.run([sys.executable, "-m", "compileall", "-q", source], check=True)
    with tempfile.TemporaryDirectory() as folder:
        found = measure(sources, Path(folder))
    print(f"CPU seconds, median of {ROUNDS}{' (other checkout, this one)' if given.other else ''}")
    for what, by_source in found.items():
        print(f"  {what:42}" + "".join(f"{median(seconds):8.2f}" for seconds in by_source))


if __name__ == "__main__":
    main(sys.argv[1:])
