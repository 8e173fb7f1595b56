"""The CPU that tracing costs: `python -m bench tracing [SHARE [PATH …]]`.

Two servers of this checkout take turns: one sends a share of its traces (0.1) to a receiver on this machine, the other
has tracing off. The ratio is (tracing ÷ off). `python -m bench.revisions REV` shows what tracing costs while it is off.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.revisions import HERE, compare, serving_revision
from tests.otlp_receiver import receiving_spans

PATHS = ("ping", "like and unlike", "explore", "following", "profile", "item")


def compare_tracing(share: str, wanted: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        collector = stack.enter_context(receiving_spans())
        settings = {"PLAZA_OTLP_ENDPOINT": collector.url, "PLAZA_OTLP_SAMPLING": share}
        tracing = stack.enter_context(serving_revision(HERE, Path(folder) / "tracing", **settings))
        off = stack.enter_context(serving_revision(HERE, Path(folder) / "off"))
        compare(tracing, off, wanted or PATHS)
        print(f"{len(collector.spans)} spans received.")


def main(arguments: Sequence[str] = ()) -> None:
    compare_tracing(arguments[0] if arguments else "0.1", arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
