"""Child processes: their exit status stays known, also if they end while they are stopped."""

from __future__ import annotations

import asyncio
import signal
from asyncio.subprocess import PIPE

from plaza.core.process.child import signal_child


async def test_a_signal_to_a_child_that_ends_keeps_its_exit_status() -> None:
    for _ in range(20):  # asyncio's own function loses every third
        child = await asyncio.create_subprocess_exec("/bin/sh", "-c", "exit 7", stdout=PIPE)
        assert child.stdout is not None
        await child.stdout.read()  # until it exits
        signal_child(child, signal.SIGKILL)
        assert await child.wait() in (7, -signal.SIGKILL)
