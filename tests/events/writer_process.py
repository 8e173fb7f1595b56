"""Votes and orders until it is killed: `python -m tests.events.writer_process URL FOLDER ARTICLE ITEM`."""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

from plaza.app import Plaza, running
from plaza.articles.service import Articles
from plaza.core.auth import Actor
from plaza.core.settings import Settings
from plaza.shop.carts import Carts
from plaza.shop.checkout import Checkout
from plaza.shop.views import Views

VOTERS = [Actor(f"voter{n}", "user") for n in range(8)]
WRITERS = 12


async def place_order(plaza: Plaza, item: int, qty: int) -> None:
    token = (await plaza.get(Views).view(None, item))[0].token
    await plaza.get(Carts).put(token, item, qty)
    await plaza.get(Checkout).check_out(token)


async def main(url: str, folder: str, article: int, item: int) -> None:
    async with running(Settings(data_dir=Path(folder), valkey_url=url, rate_limits=False)) as plaza:
        dice, voting = random.Random(11), plaza.get(Articles)

        async def vote() -> None:
            while True:
                await voting.vote(dice.choice(VOTERS), article, dice.choice(("up", "down", None)))

        async def order() -> None:
            while True:
                await place_order(plaza, item, dice.randint(1, 3))

        tasks = [asyncio.create_task(work()) for work in (vote, order) for _ in range(WRITERS)]
        await voting.vote(VOTERS[0], article, "up")
        await place_order(plaza, item, 1)
        print("writing", flush=True)
        await asyncio.gather(*tasks)


if __name__ == "__main__":
    url, folder, article, item = sys.argv[1:]
    asyncio.run(main(url, folder, int(article), int(item)))
