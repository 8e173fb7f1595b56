"""What a command has done so far, on one line of stderr."""

from __future__ import annotations

import os
import sys
from time import monotonic

# Often enough to see that it moves.
STEP_SECONDS = 0.1
_ERASE = "\r\x1b[K"
_BAR_CHARACTERS = 30


class ProgressLine:
    """A line that is written again and again, and disappears at the end. Without a terminal, as of cron, nothing is."""

    def __init__(self) -> None:
        self._terminal = sys.stderr if sys.stderr is not None and sys.stderr.isatty() else None
        self._done: dict[str, float] = {}
        self._next = 0.0

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *_: object) -> None:
        self._write("")

    def advance(self, step: str, count: float, total: float = 0) -> None:
        """Show a step of which so much more is done."""
        self._done[step] = self._done.get(step, 0) + count
        self.show(step, self._done[step], total)

    def show(self, step: str, done: float, total: float = 0, rest: str = "") -> None:
        """Show how much of a step is done, with a bar if the total is known. The total may grow."""
        if self._terminal is None or monotonic() < self._next:
            return
        self._next = monotonic() + STEP_SECONDS
        share = min(done / total, 1) if total else 0
        bar = f"{'━' * round(share * _BAR_CHARACTERS):─<{_BAR_CHARACTERS}} {share:.0%} " if total else ""
        of_total = f" of {total:,.0f}" if total else ""
        columns = os.get_terminal_size(self._terminal.fileno()).columns or 80  # 0 if the terminal does not say
        self._write(f"{step} {bar}{done:,.0f}{of_total} {rest}"[: columns - 1])

    def print(self, text: str) -> None:
        """Print a line that stays."""
        self._write("")
        print(text, file=sys.stderr)

    def _write(self, text: str) -> None:
        if self._terminal is not None:
            print(f"{_ERASE}{text}", end="", file=self._terminal, flush=True)
