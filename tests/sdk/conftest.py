"""A running Plaza for generated clients, and what runs their programs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from plaza.app import running
from plaza.core.settings import Settings
from tests.http_servers import serving
from tests.servers import Server

API_KEY = "k" * 32


@dataclass
class PlazaForClients:
    """Its address and API key."""

    url: str
    api_key: str = API_KEY

    async def run(self, *command: str | Path, **environment: str) -> str:
        """The output of a program that gets the address and the API key as arguments. It must succeed."""
        process = await asyncio.create_subprocess_exec(
            *map(str, command), self.url, self.api_key, stdout=-1, stderr=-1, env={**environment}
        )
        output, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
        return output.decode()


@pytest.fixture
async def plaza(server: Server, tmp_path: Path) -> AsyncIterator[PlazaForClients]:
    settings = Settings(data_dir=tmp_path, valkey_url=server.url, rate_limits=False, api_key=API_KEY)
    async with running(settings) as plaza, serving(plaza.app) as url:
        yield PlazaForClients(url)
