"""Forked children: their exit status and readiness are known, and they notice the end of their parent."""

from __future__ import annotations

import subprocess
import sys
import textwrap

from tests.processes import run_program
from tests.timeouts import TIME_LIMIT_SECONDS

PREAMBLE = """
    import asyncio, os, signal, sys, uvloop
    from plaza.core.process.child import terminate
    from plaza.core.process.fork import fork

    async def until_signal(link):
        stopped = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
        link.on_parent_end(stopped.set)
        link.report_ready()
        await stopped.wait()

    def serve(link):
        uvloop.run(until_signal(link))
        return 7

    def fail(link):
        raise KeyError("a traceback on stderr")
"""


async def test_the_parent_knows_when_children_are_ready_and_how_they_end() -> None:
    await run_program(
        textwrap.dedent(PREAMBLE)
        + textwrap.dedent("""
        async def main():
            reached = []
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, reached.append, "parent")
            children = [fork("child", serve), fork("child", serve)]
            for child in children:
                await child.ready.wait()
                assert child.returncode is None
            assert await terminate(children[0], 60) == 7
            os.kill(children[1].pid, signal.SIGKILL)
            assert await children[1].wait() == -signal.SIGKILL
            assert await fork("child", fail).wait() == 1
            assert await fork("child", lambda link: 3).wait() == 3
            await asyncio.sleep(0)
            assert not reached, "a signal to a child is not one to its parent"

        uvloop.run(main())
        """)
    )


def test_children_notice_that_their_parent_was_killed() -> None:
    program = textwrap.dedent(PREAMBLE) + textwrap.dedent("""
        async def main():
            children = [fork("child", serve), fork("child", serve)]
            for child in children:
                await child.ready.wait()
            os.kill(os.getpid(), signal.SIGKILL)

        uvloop.run(main())
        """)
    # The children have the pipe open too, so this ends when all are gone.
    ended = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, timeout=TIME_LIMIT_SECONDS, check=False
    )
    assert ended.returncode == -9
