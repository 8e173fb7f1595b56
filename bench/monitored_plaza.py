"""`plaza serve` that notes what holds its event loop: `python -m bench.monitored_plaza plaza FILE`.

It runs on asyncio's own loop, because uvloop does not show its callbacks. A callback that takes more CPU than
MIN_HOLD_MS becomes a line of JSON in the file. CPU, not time by the clock: waiting for a core is not holding the loop.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from typing import Any

import uvloop

from plaza import serve
from plaza.core.settings import Settings

MIN_HOLD_MS = 0.5


def note_holds(path: str) -> None:
    """From now on, append each callback that holds the loop to the file."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    handle_class: Any = asyncio.Handle
    collections = list[int]()  # the generations that were collected during the present callback
    gc.callbacks.append(lambda phase, info: collections.append(info["generation"]) if phase == "stop" else None)
    run = handle_class._run

    def timed_run(handle: asyncio.Handle) -> None:
        collections.clear()
        began = time.thread_time()
        run(handle)
        held_ms = (time.thread_time() - began) * 1000
        if held_ms >= MIN_HOLD_MS:
            name = _name(handle)
            if collections:
                name += f" with garbage collection of generation {max(collections)}"
            line = {"at": time.time(), "ms": held_ms, "callback": name}
            os.write(file, json.dumps(line).encode() + b"\n")

    handle_class._run = timed_run


def _name(handle: Any) -> str:
    callback = handle._callback
    if callback is None:  # cancelled
        return "?"
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        job = "" if owner.get_name().startswith("Task-") else f"{owner.get_name()}: "
        return job + " > ".join(_coroutines(owner.get_coro())[-3:])
    return str(getattr(callback, "__qualname__", callback))


def _coroutines(coroutine: Any) -> list[str]:
    """The coroutines that wait for each other now, the outermost first."""
    names = list[str]()
    while hasattr(coroutine, "cr_code"):
        names.append(coroutine.__qualname__)
        coroutine = coroutine.cr_await
    return names


if __name__ == "__main__":
    note_holds(sys.argv[2])
    runner: Any = uvloop
    runner.run = asyncio.run
    sys.exit(serve.serve(Settings.from_env(), empty=True))
