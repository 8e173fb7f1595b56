"""Plaza's services without HTTP, as the examples use them: in a script and in a handler of another application."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.embedding import fastapi_app, script
from plaza.core.keyspace import Layout, use_layout
from tests.http_servers import client_of
from tests.servers import Server


async def test_a_script_and_a_handler_of_another_application_write_posts(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"VALKEY_URL": server.url, "DATA_DIR": str(tmp_path), "RATE_LIMITS": "off"}.items():
        monkeypatch.setenv(f"PLAZA_{name}", value)
    await script.main()
    assert "ana: Written by a script. #hello\n" in capsys.readouterr().out
    async with client_of(fastapi_app.app) as client:
        announced = (await client.post("/releases/2.0")).json()
        post = (await client.get(f"/community/posts/{announced['post']}")).json()
    assert (post["username"], post["content"]) == ("ana", "Version 2.0 is out. #release")
    use_layout(Layout.PLAIN)
