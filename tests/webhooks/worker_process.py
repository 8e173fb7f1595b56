"""A worker that tests kill: `python -m tests.webhooks.worker_process URL FOLDER`. It prints a line when it runs."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from plaza.app import running
from plaza.core.settings import Settings
from plaza.webhooks import dispatcher, domain

# Three times the delay that a busy machine may cause for a renewal.
LEASE_SECONDS = 2.4


async def main(url: str, folder: str) -> None:
    domain.LEASE_SECONDS = LEASE_SECONDS
    dispatcher.STANDBY_SECONDS = 0.2  # type: ignore[misc]
    settings = Settings(data_dir=Path(folder), valkey_url=url, webhooks_private=True)
    async with running(settings) as plaza:
        working = asyncio.create_task(plaza.worker.run())
        print("started", flush=True)
        await working


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
