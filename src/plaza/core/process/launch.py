"""Replaces itself with another program that cannot outlive its parent process.

    launch.py kernel|pipe PARENT_PID PROGRAM [ARGUMENT …]

It runs as a script, by path, with `python -I -S`: it prepares the process and then calls `exec`, so nothing of Python
stays in memory and the process id is the program's. The alternative, `preexec_fn`, runs Python code in a forked copy of
a threaded process and may deadlock.

On Linux `PR_SET_PDEATHSIG` makes the kernel send a signal when the parent *thread* ends, and it survives `exec`. So
start programs from a thread that lives as long as its process. On other systems a small forked watcher waits for the
end of a pipe whose other end only the parent holds; it is closed however the parent dies.
"""

from __future__ import annotations

import os
import select
import signal
import sys

PR_SET_PDEATHSIG = 1
# How often the watcher checks whether the program still runs.
WATCH_SECONDS = 1.0


def main() -> None:
    watch, parent, *command = sys.argv[1:]
    if watch == "kernel":
        _request_death_signal()
    else:
        _fork_watcher()
    # The parent may have died before the request, which then has no effect.
    if os.getppid() != int(parent):
        sys.exit(1)
    os.execv(command[0], command)  # noqa: S606


def _request_death_signal() -> None:
    import ctypes  # only here: it is slow to load

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")


def _fork_watcher() -> None:
    program = os.getpid()
    if os.fork() != 0:
        return
    # The watcher must not keep an inherited lock or socket open.
    os.closerange(3, 4096)
    while not select.select([0], [], [], WATCH_SECONDS)[0]:
        if os.getppid() != program:
            os._exit(0)
    if os.getppid() == program:
        os.kill(program, signal.SIGTERM)
    os._exit(0)


if __name__ == "__main__":
    main()
