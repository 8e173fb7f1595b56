"""Runs the console transcripts of a Markdown page and compares their output.

A transcript is a code block of type `console`. A line that starts with `$ ` is a command, a following line that starts
with `> ` continues it, and the other lines are its output. `…` in the output matches anything. All commands of a page
run in one shell.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.timeouts import TIME_LIMIT_SECONDS

# The address that pages show for a server.
SHOWN_ADDRESS = "localhost:8000"
_MARK = "@@@ end of command"


@dataclass
class Step:
    """A command and the output that the page shows."""

    command: str
    output: list[str] = field(default_factory=list)

    def matches(self, found: str) -> bool:
        expected = ".*".join(map(re.escape, "\n".join(self.output).strip().split("…")))
        return re.fullmatch(expected, found.strip(), re.DOTALL) is not None


def read_steps(page: str) -> list[Step]:
    """The steps of all transcripts of a page."""
    steps: list[Step] = []
    for block in re.findall(r"^```console\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        for line in block.splitlines():
            if line.startswith("$ "):
                steps.append(Step(line[2:]))
            elif line.startswith("> ") and not steps[-1].output:
                steps[-1].command += "\n" + line[2:]
            else:
                steps[-1].output.append(line)
    return steps


def run_steps(steps: list[Step], folder: Path, address: str) -> list[str]:
    """Run the commands in a folder, with a server at this address. Returns the output of each."""
    script = "".join(f"{step.command}\nprintf '\\n{_MARK}\\n'\n" for step in steps)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PLAZA_")}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script.replace(SHOWN_ADDRESS, address)],
        cwd=folder,
        env={**clean, "PATH": path, "COLUMNS": "120"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=2 * TIME_LIMIT_SECONDS,
        check=False,
    )
    outputs = done.stdout.replace(address, SHOWN_ADDRESS).split(f"\n{_MARK}\n")
    assert len(outputs) == len(steps) + 1, done.stdout
    return outputs[:-1]


def assert_page_is_right(page: Path, folder: Path, address: str) -> None:
    """Run all transcripts of a page and compare the output of every command."""
    steps = read_steps(page.read_text())
    assert steps, f"{page.name} has no transcript"
    for step, found in zip(steps, run_steps(steps, folder, address), strict=True):
        assert step.matches(found), f"$ {step.command}\nexpected:\n" + "\n".join(step.output) + f"\nfound:\n{found}"
