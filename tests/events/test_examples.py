"""The example consumers receive every event once, also if they are killed and started again."""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path

import pytest

from tests.servers import Server
from tests.timeouts import within_time_limit

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "events"


class ConsumerProcess:
    """One of the example consumers."""

    def __init__(self, *command: str) -> None:
        self._command = command

    async def __aenter__(self) -> ConsumerProcess:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(*self._command, stdout=pipe)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._process.kill()
        await self._process.wait()

    async def read_line(self) -> str:
        assert self._process.stdout is not None
        async with within_time_limit():
            return (await self._process.stdout.readline()).decode()


@pytest.fixture(params=["python", "node"])
def command(request: pytest.FixtureRequest, server: Server, tmp_path: Path) -> list[str]:
    url = f"redis://127.0.0.1:{server.port}"
    if request.param == "python":
        return [sys.executable, str(EXAMPLES / "consumer.py"), url, "social", "my-service"]
    shutil.copy(EXAMPLES / "consumer.mjs", tmp_path)
    (tmp_path / "node_modules").symlink_to(Path(__file__).parent / "node_modules")
    return ["node", str(tmp_path / "consumer.mjs"), url, "social", "my-service"]


async def test_a_consumer_goes_on_where_it_was_killed(command: list[str], server: Server) -> None:
    def emit(subject: str) -> None:
        with server.redis_client() as client:
            client.xadd("events:social", {"type": "post.created", "subject": subject, "time": 1, "data": "{}"})

    emit("first")
    async with ConsumerProcess(*command) as consumer:
        assert "first" in await consumer.read_line()
        emit("second")
        assert "second" in await consumer.read_line()
    emit("third")
    async with ConsumerProcess(*command) as consumer:
        assert "third" in await consumer.read_line(), "what was handled before is not repeated"
