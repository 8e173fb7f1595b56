"""Become another program, one that cannot outlive the process that asked for it.

Run as a script, by path, with `python -I -S`: it sets itself up and then *becomes* the program (`exec`), so nothing
of it stays in memory and the process id is the program's own. This is done here, between start and exec, because the
other way (`preexec_fn`, Python code in a forked copy of a threaded process) may deadlock.

On Linux the kernel does the watching: `PR_SET_PDEATHSIG` sends us a signal when the thread that started us ends, and
it survives `exec`. (The *thread*: so start programs from a thread that lives as long as its process.) Elsewhere a
small forked watcher waits for the end of a pipe whose other end only the parent holds; a dead parent holds nothing,
however it died.

    launch.py kernel|pipe PARENT_PID PROGRAM [ARGUMENT …]
"""

from __future__ import annotations

import os
import select
import signal
import sys

PR_SET_PDEATHSIG = 1
# How often the watcher looks whether the program it guards is still there.
WATCH_SECONDS = 1.0


def main() -> None:
    how, parent, *command = sys.argv[1:]
    if how == "kernel":
        _ask_the_kernel()
    else:
        _leave_a_watcher()
    # The parent may have died before we asked: then nobody will tell us.
    if os.getppid() != int(parent):
        sys.exit(1)
    os.execv(command[0], command)  # noqa: S606


def _ask_the_kernel() -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")


def _leave_a_watcher() -> None:
    program = os.getpid()
    if os.fork() != 0:
        return
    # An inherited lock or socket must not stay open because the watcher holds it.
    os.closerange(3, 4096)
    while not select.select([0], [], [], WATCH_SECONDS)[0]:
        if os.getppid() != program:
            os._exit(0)
    if os.getppid() == program:
        os.kill(program, signal.SIGTERM)
    os._exit(0)


if __name__ == "__main__":
    main()
