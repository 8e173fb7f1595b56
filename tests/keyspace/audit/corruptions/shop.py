"""Sessions, carts and rows that another writer broke."""

from __future__ import annotations

from typing import Any

from plaza.shop import keys as s
from tests.keyspace.audit.corruptions.ways import TOKEN, Breaks
from tests.keyspace.audit.sample_community import Town

breaks = Breaks()


@breaks.found_as("shop:session:<token>", "session")
async def a_session_is_not_signed_in(r: Any, t: Town) -> None:
    await r.hdel(s.SHOP_LOGINS(), t.token)


@breaks.found_as("login:", "session")
async def a_guest_is_signed_in(r: Any, t: Town) -> None:
    await r.hset(s.SHOP_LOGINS(), t.guest, "ana")


@breaks.found_as("recent:", "session")
async def a_session_was_seen_that_is_not_there(r: Any, t: Town) -> None:
    await r.zadd(s.SHOP_RECENT(), {TOKEN: 5})


@breaks.found_as("shop:session:<token>", "cart")
async def a_session_shows_another_cart(r: Any, t: Town) -> None:
    await r.hset(s.SHOP_CART(t.token), t.items[2], 9)


@breaks.found_as("cart:<token>", "value")
async def a_quantity_cannot_be(r: Any, t: Town) -> None:
    await r.hset(s.SHOP_CART(t.guest), t.items[2], -4)


@breaks.found_as("cart:<token>", "orphan")
async def a_cart_of_no_session(r: Any, t: Town) -> None:
    await r.hset(s.SHOP_CART(TOKEN), t.items[0], 1)


@breaks.found_as("viewed:", "score")
async def an_item_was_viewed_less_than_never(r: Any, t: Town) -> None:
    await r.zadd(s.SHOP_POPULAR(), {t.items[2]: 3})


@breaks.found_as("shop:row:<item>", "schedule")
async def a_row_is_scheduled_nowhere(r: Any, t: Town) -> None:
    await r.zrem(s.SHOP_SCHEDULE(), t.items[0])


@breaks.found_as("shop:account:<username>:sessions", "session")
async def a_person_has_anothers_session(r: Any, t: Town) -> None:
    await r.zadd(s.SHOP_ACCOUNT_SESSIONS("ben"), {t.token: 5})
