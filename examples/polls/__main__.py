"""Serves Plaza with the polls domain: `python -m examples.polls VALKEY_URL PORT`."""

from __future__ import annotations

import asyncio
import sys

import uvicorn

from examples.polls.domain import DOMAIN
from plaza.app import DOMAINS, running
from plaza.core.settings import Settings


async def main(valkey_url: str, port: int) -> None:
    async with running(Settings(valkey_url=valkey_url), [*DOMAINS, DOMAIN]) as plaza:
        config = uvicorn.Config(plaza.app, port=port, lifespan="off", log_config=None)
        await uvicorn.Server(config).serve()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
