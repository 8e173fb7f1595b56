"""The commands of webhooks, from the first to the last."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from standardwebhooks import Webhook as Verifier

from plaza.cli import main
from tests.databases import with_tables
from tests.servers import Server
from tests.webhooks.receiver import Receiver, answer

Run = Callable[..., Awaitable[tuple[int, str, str]]]


@pytest.fixture
def run(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command beside the receiver. Returns its exit status and what it printed."""
    settings = {"VALKEY_URL": server.url, "DATA_DIR": str(with_tables(tmp_path)), "WEBHOOKS_PRIVATE": "on"}
    for name, value in settings.items():
        monkeypatch.setenv(f"PLAZA_{name}", value)

    async def run(*words: str) -> tuple[int, str, str]:
        status = await asyncio.to_thread(main, ["webhooks", *words])
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


async def test_a_webhook_is_added_listed_tested_rotated_and_removed(run: Run, receiver: Receiver) -> None:
    status, printed, _ = await run("add", receiver.url, "--types", "post.*, order.placed")
    assert status == 0
    id, secret = printed.split()
    status, printed, _ = await run("test", id)
    assert status == 0
    assert printed.startswith("Delivered: HTTP 200 (")
    Verifier(secret).verify(receiver.requests[0].body, receiver.requests[0].headers)
    status, printed, _ = await run("list")
    assert printed == f"{id}  working  {receiver.url}  post.*,order.placed  0 delivered, 0 waiting, 0 dropped\n"
    _, rotated, _ = await run("rotate", id)
    receiver.respond = answer(500)
    status, printed, _ = await run("test", id)
    assert status == 1
    assert printed.startswith("HTTP 500 (")
    Verifier(rotated.strip()).verify(receiver.requests[1].body, receiver.requests[1].headers)
    assert await run("remove", id) == (0, f"The webhook {id} is removed.\n", "")
    assert await run("list") == (0, "", "")
    assert await run("remove", id) == (1, "", "plaza: There is no such webhook.\n")


async def test_wrong_arguments_are_named_in_one_line(run: Run) -> None:
    status, _, error = await run("add", "ftp://example.org")
    assert (status, error) == (1, "plaza: Invalid URL. Use one such as https://example.org/hook.\n")
    status, _, error = await run("add", "http://example.org", "--types", "post")
    assert status == 1
    assert error.startswith("plaza: Invalid event type. Use a type such as post.created")
