"""Another web shop: it writes by the document, one plain command after the other."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any

from tests.other_services.running import PlazaBesideOthers


class ShopService:
    """Writes and reads the keys of the shop document, as the book does that the document comes from."""

    def __init__(self, beside: PlazaBesideOthers) -> None:
        self.client: Any = beside.client
        self.owned = beside.owned

    async def update_token(self, token: str, user: str, item: str | None = None, at: float | None = None) -> None:
        """Record that a user was seen with a token, and which item they viewed."""
        seen = time.time() if at is None else at
        await self.client.hset("login:", token, user)
        await self.client.zadd("recent:", {token: seen})
        if item is not None:
            await self.client.zadd(f"viewed:{self.owned(token)}", {item: seen})
            await self.client.zremrangebyrank(f"viewed:{self.owned(token)}", 0, -26)
            await self.client.zincrby("viewed:", -1, item)

    async def login(self, user: str) -> str:
        token = str(uuid.uuid4()).upper()
        await self.update_token(token, user)
        return token

    async def check_token(self, token: str) -> str | None:
        user: str | None = await self.client.hget("login:", token)
        return user

    async def add_to_cart(self, token: str, item: str | int, count: int) -> None:
        cart = f"cart:{self.owned(token)}"
        if count <= 0:
            await self.client.hdel(cart, item)
        else:
            await self.client.hset(cart, item, count)

    async def read_cart(self, token: str) -> dict[str, str]:
        cart: dict[str, str] = await self.client.hgetall(f"cart:{self.owned(token)}")
        return cart

    async def clean_session(self, token: str) -> None:
        """Remove a session as the cleaner does."""
        await self.client.delete(f"viewed:{self.owned(token)}")
        await self.client.delete(f"cart:{self.owned(token)}")
        await self.client.hdel("login:", token)
        await self.client.zrem("recent:", token)

    async def schedule_row(self, row: str | int, delay: float, at: float | None = None) -> None:
        await self.client.zadd("delay:", {str(row): delay})
        await self.client.zadd("schedule:", {str(row): time.time() if at is None else at})

    async def unschedule_row(self, row: str | int) -> None:
        await self.client.zrem("delay:", str(row))
        await self.client.zrem("schedule:", str(row))
        await self.client.delete(f"inv:{self.owned(row)}")

    async def cache_row(self, row: str | int, **fields: Any) -> None:
        await self.client.set(f"inv:{self.owned(row)}", json.dumps(fields))

    async def cache_page(self, page: str, html: str) -> None:
        await self.client.set(f"cache:{self.owned(page)}", html, ex=300)
