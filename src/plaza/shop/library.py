"""The Lua library of the shop, built on that of sessions: a request's session and its work are one atomic step."""

from __future__ import annotations

from plaza.caching.keys import ITEM_VIEWS
from plaza.core.functions import Library
from plaza.sessions.library import LIBRARY as SESSIONS
from plaza.shop.keys import CATALOGUE

LIBRARY = Library.read(
    "shop",
    CATALOGUE,
    "plaza.shop.lua",
    "views",
    "carts",
    "repair",
    base=SESSIONS,
    constants={"ITEM_VIEWS": ITEM_VIEWS()},  # no part, so the name is the same in both layouts
)
