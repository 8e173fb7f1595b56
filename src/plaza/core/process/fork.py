"""Forks children that share what this process has imported. They end with it, and it knows when they end.

Importing Plaza takes most of the CPU of a start, and a forked child needs none of it. The child is a copy of its parent
in the middle of the parent's event loop, to which it must never return. So it first gives up what would reach the
parent (the descriptor to which signals are written, signal handlers, the session), then runs a loop of its own, and
leaves by `os._exit`.

A pair of sockets connects both. The child writes a byte when it is ready. Each side reads the end of the file when the
other one is gone, however it ended: that needs no signal, no thread and no polling, on every system.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

# Of all children: a child closes those of its siblings. Otherwise they would not notice the end of the parent.
_PARENT_ENDS: Final = set[int]()
_COMM = Path("/proc/self/comm")


class ParentLink:
    """The child's end of the connection to its parent."""

    def __init__(self, end: int) -> None:
        self._end = end

    def report_ready(self) -> None:
        os.write(self._end, b".")

    def on_parent_end(self, callback: Callable[[], None]) -> None:
        """Call back in the running event loop when the parent is gone."""
        loop = asyncio.get_running_loop()

        def end() -> None:
            loop.remove_reader(self._end)
            callback()

        loop.add_reader(self._end, end)


class ForkedProcess:
    """A running child. `ready` is set when it is ready; `wait` returns its exit status."""

    def __init__(self, pid: int, end: int) -> None:
        self.pid = pid
        self.ready = asyncio.Event()
        self._end = end
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(end, self._read)

    @property
    def returncode(self) -> int | None:
        """The exit status, or the negative number of the signal that ended it; None while it runs."""
        return self._ended.result() if self._ended.done() else None

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    def _read(self) -> None:
        with contextlib.suppress(ConnectionResetError):
            if os.read(self._end, 1):
                self.ready.set()
                return
        asyncio.get_running_loop().remove_reader(self._end)
        _PARENT_ENDS.discard(self._end)
        os.close(self._end)
        _, status = os.waitpid(self.pid, 0)  # the kernel closes its files just before it can be waited for
        self._ended.set_result(os.waitstatus_to_exitcode(status))


def fork(name: str, run: Callable[[ParentLink], int]) -> ForkedProcess:
    """Run a function in a child that shows as `name` in a list of processes; it returns the exit status.

    Call it in the main thread, inside the event loop.
    """
    parent_end, child_end = (end.detach() for end in socket.socketpair())
    # A signal that reached the child before it is detached would be written to the parent's event loop.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    pid = os.fork()
    if pid == 0:
        for inherited in (parent_end, *_PARENT_ENDS):
            os.close(inherited)
        _detach(name)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        _run_and_exit(run, ParentLink(child_end))
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    os.close(child_end)
    _PARENT_ENDS.add(parent_end)
    return ForkedProcess(pid, parent_end)


def _detach(name: str) -> None:
    """Give up what would reach the parent: its signals, its session, its terminal."""
    signal.set_wakeup_fd(-1)
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(sig) is not signal.SIG_IGN:
            signal.signal(sig, signal.SIG_DFL)
    os.setsid()  # a Ctrl-C at the terminal is for the parent, which stops its children in order
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    with contextlib.suppress(OSError):
        _COMM.write_text(name)


def _run_and_exit(run: Callable[[ParentLink], int], link: ParentLink) -> NoReturn:
    status = 1
    try:
        status = run(link)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(status)
