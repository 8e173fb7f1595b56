"""Every command of the tutorials runs on a real server and prints what the tutorial shows."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.processes import ServerProcess, until
from tests.servers import free_port
from tests.transcripts import assert_page_is_right

ROOT = Path(__file__).parents[2]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))


@contextmanager
def server_for(page: Path, folder: Path) -> Iterator[str]:
    """The address of the server that a tutorial uses."""
    server = ServerProcess(folder / "var").wait_for("Ctrl-C stops it.")
    try:
        if page.name == "write-a-domain.md":
            with example_server(folder) as address:
                yield address
        else:
            yield server.url.removeprefix("http://").replace("127.0.0.1", "localhost")
    finally:
        server.stop()


@contextmanager
def example_server(folder: Path) -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "examples.polls", f"unix://{folder}/var/valkey.sock", str(port)]
    with subprocess.Popen(command, cwd=folder, env={"PYTHONPATH": str(ROOT), "PLAZA_DATA_DIR": "var"}) as process:
        try:
            until(lambda: process.poll() is not None or _responds(port))
            yield f"localhost:{port}"
        finally:
            process.terminate()


def _responds(port: int) -> bool:
    try:
        return httpx.get(f"http://localhost:{port}/ping").status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_the_transcripts_of_a_tutorial_are_right(page: Path, tmp_path: Path) -> None:
    with server_for(page, tmp_path) as address:
        assert_page_is_right(page, tmp_path, address)
