"""Every event arrives, in order per subject, when a worker is killed or Valkey restarts in the middle."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from plaza.app import running
from plaza.core.keyspace import Layout, use_layout
from plaza.core.settings import Settings
from plaza.webhooks.endpoints import Webhooks
from plaza.webhooks.keys import WEBHOOK_QUEUE
from plaza.webhooks.model import NewWebhook
from tests.servers import Cluster, Server, running_server
from tests.waiting import eventually
from tests.webhooks.receiver import ReceivedWebhook, Receiver, answer
from tests.webhooks.test_delivery import emit_many, numbers_by_subject

SUBJECTS = [str(number % 20) for number in range(400)]
EXPECTED = {subject: [n for n, each in enumerate(SUBJECTS) if each == subject] for subject in set(SUBJECTS)}


@contextlib.contextmanager
def worker_process(url: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.webhooks.worker_process", url, str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "started\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextlib.asynccontextmanager
async def endpoint(place: Server | Cluster, folder: Path, receiver: Receiver) -> AsyncIterator[str]:
    """Plaza without a worker, and an endpoint. Gives its id."""
    settings = Settings(data_dir=folder, valkey_url=place.url, webhooks_private=True)
    async with running(settings) as plaza:
        yield (await plaza.get(Webhooks).create("@cli", NewWebhook(receiver.url, ["*"]))).id
    use_layout(Layout.PLAIN)


def has_all(receiver: Receiver) -> bool:
    found = numbers_by_subject(receiver)
    return {subject: sorted(set(numbers)) for subject, numbers in found.items()} == EXPECTED


def assert_in_order(receiver: Receiver) -> None:
    for numbers in numbers_by_subject(receiver).values():
        assert numbers == sorted(numbers)


async def test_a_killed_worker_loses_nothing_and_another_keeps_the_order(
    place: Server | Cluster, redis_client: Any, tmp_path: Path, receiver: Receiver
) -> None:
    enough = asyncio.Event()

    async def respond(request: ReceivedWebhook, writer: asyncio.StreamWriter) -> None:
        if len(receiver.requests) == 100:
            first.send_signal(signal.SIGKILL)
            enough.set()
        await answer(200)(request, writer)

    receiver.respond = respond
    async with endpoint(place, tmp_path, receiver) as id:
        await emit_many(redis_client, SUBJECTS)
        with worker_process(place.url, tmp_path) as first, worker_process(place.url, tmp_path):
            await enough.wait()
            assert not has_all(receiver)
            await eventually(lambda: has_all(receiver))
            assert_in_order(receiver)
            # Only requests whose result was not stored came twice.
            assert len(receiver.requests) <= len(SUBJECTS) + 2 * 16

            async def is_empty() -> bool:
                return not await redis_client.xlen(WEBHOOK_QUEUE(id))

            await eventually(is_empty)


async def test_a_restart_of_valkey_loses_nothing(tmp_path: Path, receiver: Receiver) -> None:
    with running_server("--appendonly", "yes", "--appendfsync", "always") as server:
        middle = asyncio.Event()

        async def respond(request: ReceivedWebhook, writer: asyncio.StreamWriter) -> None:
            if len(receiver.requests) >= 100:
                middle.set()
            await answer(200)(request, writer)

        receiver.respond = respond
        settings = Settings(data_dir=tmp_path, valkey_url=server.url, webhooks_private=True)
        async with running(settings) as plaza:
            await plaza.get(Webhooks).create("@cli", NewWebhook(receiver.url, ["*"]))
            with server.redis_client() as client:
                for number, subject in enumerate(SUBJECTS):
                    fields = {"type": "post.liked", "subject": subject, "data": f'{{"number": {number}}}'}
                    client.xadd("events:social", fields)
            working = asyncio.create_task(plaza.worker.run())
            await middle.wait()
            server.stop(signal.SIGKILL)
            server.start()
            await eventually(lambda: has_all(receiver))
            working.cancel()
            await asyncio.wait([working])
        assert_in_order(receiver)
