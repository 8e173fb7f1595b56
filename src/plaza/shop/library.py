"""The Lua library of the shop, built on that of sessions: a request's session and its work are one atomic step."""

from __future__ import annotations

from plaza.caching.keys import ITEM_VIEWS
from plaza.core.functions import Library
from plaza.sessions.library import LIBRARY as SESSIONS
from plaza.sessions.session_store import SessionData
from plaza.shop.keys import CART, CATALOGUE, VIEWED_ITEMS
from plaza.shop.model import MAX_CHANGE_BATCHES, MAX_LINES, MAX_MERGED_LINES, MAX_MERGES, MAX_QUANTITY, MAX_VIEWED_ITEMS

LIBRARY = Library.read(
    "shop",
    CATALOGUE,
    "plaza.shop.lua",
    "views",
    "carts",
    "checkout",
    "repair",
    base=SESSIONS,
    constants={
        "ITEM_VIEWS": ITEM_VIEWS(),  # it has no part, so the name is the same in both layouts
        "MAX_CHANGE_BATCHES": MAX_CHANGE_BATCHES,
        "MAX_LINES": MAX_LINES,
        "MAX_MERGED_LINES": MAX_MERGED_LINES,
        "MAX_MERGES": MAX_MERGES,
        "MAX_QUANTITY": MAX_QUANTITY,
        "MAX_VIEWED_ITEMS": MAX_VIEWED_ITEMS,
    },
)

# In the order in which `views.lua` declares them.
SESSION_DATA = SessionData(LIBRARY.name, (CART, VIEWED_ITEMS))
