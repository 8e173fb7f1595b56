"""A running Plaza for generated clients, and what runs their programs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from plaza.app import running
from plaza.core.settings import Settings
from tests.http_servers import serving
from tests.sdk import samples
from tests.servers import Server
from tests.transcripts import assert_page_is_right

API_KEY = "k" * 32


@dataclass
class PlazaForClients:
    """Its address and API key."""

    url: str
    api_key: str = API_KEY

    async def run(self, *command: str | Path, **environment: str) -> str:
        """The output of a program, which must succeed. `API_KEY` is in its environment."""
        variables = {"PATH": os.environ["PATH"], "API_KEY": self.api_key, **environment}
        process = await asyncio.create_subprocess_exec(*map(str, command), stdout=-1, stderr=-1, env=variables)
        output, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
        return output.decode()

    async def run_transcript(self, folder: Path) -> None:
        """Run the console example of docs/sdk.md, which registers the user of the other samples."""
        await asyncio.to_thread(assert_page_is_right, samples.PAGE, folder, self.url.removeprefix("http://"))


@pytest.fixture
async def plaza(server: Server, tmp_path: Path) -> AsyncIterator[PlazaForClients]:
    settings = Settings(data_dir=tmp_path, valkey_url=server.url, rate_limits=False, api_key=API_KEY)
    async with running(settings) as plaza, serving(plaza.app) as url:
        yield PlazaForClients(url)
