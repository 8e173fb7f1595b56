"""The Lua library of notifications, on top of core's paging."""

from __future__ import annotations

from plaza.core import paging
from plaza.core.functions import Library
from plaza.core.notification_source import MAX_ACTORS
from plaza.notifications.keys import CATALOGUE, MAX_GROUPS
from plaza.notifications.model import COUNTED_TYPES, MAX_OF_SUBJECT

LIBRARY = Library.read(
    "notifications",
    CATALOGUE,
    "plaza.notifications.lua",
    "groups",
    "reading",
    "repair",
    base=paging.LIBRARY,
    constants={
        "MAX_ACTORS": MAX_ACTORS,
        "MAX_GROUPS": MAX_GROUPS,
        "MAX_OF_SUBJECT": MAX_OF_SUBJECT,
        "IS_COUNTED": dict.fromkeys(COUNTED_TYPES, True),
    },
)
