"""Concurrent writes in all domains, for backups in the middle of it: `write_storm`, with orders and pictures."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random
from uuid import uuid4

from sqlalchemy import func, select

from plaza.app import Plaza
from plaza.core.auth import Actor
from plaza.media.pictures import PictureDeletion
from plaza.media.processor import ImageFile, ProcessedImage
from plaza.media.uploads import Uploads
from plaza.sessions.model import SessionReplaced
from plaza.shop.carts import Carts
from plaza.shop.checkout import Checkout
from plaza.shop.items import Items
from plaza.shop.model import EmptyCart, NewItem, OutOfStock
from plaza.shop.tables import ITEMS, LINES
from plaza.social.model import NewPost
from plaza.social.posts import Posts
from tests.keyspace.audit.sample_community import load
from tests.keyspace.audit.write_storm import WriteStorm, storm
from tests.waiting import eventually

STOCK = 10_000
ITEM = "Cup"


class BackupStorm:
    """Orders, pictures and posts that no user deletes, beside the operations of `write_storm`."""

    def __init__(self, plaza: Plaza) -> None:
        self._plaza = plaza
        self._random = Random(7)
        self.posts: list[str] = []
        self._pictures: list[str] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[WriteStorm]:
        """Run four users and a worker, and a customer of a new item, during the block."""
        community = await load(self._plaza)
        item = await self._plaza.get(Items).create(NewItem(ITEM, "", "2.50", STOCK), uuid4().hex)
        async with storm(self._plaza, community, users=4) as others:
            stopped = asyncio.Event()
            writer = asyncio.create_task(self._write(item.id, stopped))
            try:
                yield others
            finally:
                stopped.set()
                await writer

    async def _write(self, item: int, stopped: asyncio.Event) -> None:
        while not stopped.is_set():
            visit, _ = await self._plaza.get(Carts).put(None, item, self._random.randint(1, 3))
            await self._plaza.get(Checkout).check_out(visit.token)
            await self.add_picture()
            if len(self._pictures) > 2:
                await self._plaza.get(PictureDeletion).delete(_ANA, self._pictures.pop(0))
            new = NewPost("Look #plaza", media=[self._pictures[-1]])
            self.posts.append((await self._plaza.get(Posts).create(_ANA, new)).id)

    async def wait(self, others: WriteStorm, count: int) -> None:
        """Wait until so many more operations are done by the others, and two orders with posts."""
        operations, posts = others.done + count, len(self.posts) + 2
        await eventually(lambda: others.done >= operations and len(self.posts) >= posts)

    async def add_picture(self) -> None:
        id = str(uuid4())
        await self._plaza.get(Uploads).store(processed_image(id), id, _ANA, "")
        self._pictures.append(id)


_ANA = Actor("ana", "user")


def processed_image(seed: str) -> ProcessedImage:
    """Return a picture as it leaves the decoder, without decoding one."""
    bodies = {name: hashlib.sha256(f"{seed} {name}".encode()).digest() * 40 for name in ("small", "medium", "large")}
    files = [(ImageFile(name, "webp", len(body)), body) for name, body in bodies.items()]
    return ProcessedImage(320, 240, "LEHV6nWB2yk8pyo0adR*.7kCMdnj", files)


async def stock_and_orders(plaza: Plaza) -> int:
    """Return how many of the item are in stock and in orders together."""
    sold = select(func.coalesce(func.sum(LINES.c.qty), 0)).where(LINES.c.item_id == ITEMS.c.id).scalar_subquery()
    rows = await plaza.core.sql.fetch_all(select(ITEMS.c.qty + sold).where(ITEMS.c.name == ITEM))
    return int(rows[0][0])


async def check_out_open_carts(plaza: Plaza, tokens: list[str]) -> None:
    """Repeat the checkout of every session, as browsers of an interrupted checkout would."""
    for token in tokens:
        with suppress(EmptyCart, OutOfStock, SessionReplaced):
            await plaza.get(Checkout).check_out(token)
