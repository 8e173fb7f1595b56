"""The progress of a command on a terminal."""

from __future__ import annotations

import os
import sys

import pytest

from plaza.commands import progress_line
from plaza.commands.progress_line import ProgressLine


def test_progress_is_one_line_of_a_terminal_that_disappears(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_line, "STEP_SECONDS", 0)
    ours, theirs = os.openpty()
    with open(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with ProgressLine() as line:
            line.advance("rows", 1_000)
            line.advance("rows", 500, total=3_000)
            line.print("Line 7 is skipped.")
            line.show("keys", 9, rest="2/s")
    received = b""
    while received.count(b"\x1b[K") < 5:  # a terminal may hand out one line after the other
        received += os.read(ours, 1_000)
    os.close(ours)
    shown = received.decode().split("\r\x1b[K")
    half = f"rows {'━' * 15}{'─' * 15} 50% 1,500 of 3,000 "
    assert shown == ["", "rows 1,000 ", half, "Line 7 is skipped.\r\n", "keys 9 2/s", ""]


def test_without_a_terminal_only_lines_that_stay_are_written(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressLine() as line:
        line.advance("rows", 1_000)
        line.print("Line 7 is skipped.")
    assert capsys.readouterr().err == "Line 7 is skipped.\n"
