"""The Lua library of webhooks. Each file may use what the files before it define."""

from __future__ import annotations

from plaza.core.functions import Library
from plaza.webhooks.keys import CATALOGUE
from plaza.webhooks.model import MAX_DELIVERIES, MAX_QUEUED

LIBRARY = Library.read(
    "webhooks",
    CATALOGUE,
    "plaza.webhooks.lua",
    "endpoints",
    "queue",
    "deliveries",
    "repair",
    constants={"MAX_QUEUED": MAX_QUEUED, "MAX_DELIVERIES": MAX_DELIVERIES},
)
