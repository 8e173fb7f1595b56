"""Former usernames of renamed accounts (`users:renamed`). Renaming is rare, so the hash is small and is scanned."""

from __future__ import annotations

from plaza.core.functions import Functions
from plaza.core.sequences import pairs
from plaza.core.valkey import Valkey, scan_pages
from plaza.social.keys import USERS_RENAMED


async def former_names(valkey: Valkey, username: str) -> list[str]:
    """Return the names that a user had before. One round trip for each few hundred renamed users."""
    found: list[str] = []
    async for page in scan_pages(valkey, "HSCAN", USERS_RENAMED(), count=500):
        found += [old for old, current in pairs(page) if current == username]
    return sorted(set(found))


async def record_former_name(functions: Functions, old: str, new: str) -> None:
    """Let mentions of the old username, and of those before it, lead to the new one. Repeatable."""
    earlier = await former_names(functions.valkey, old)
    await functions.run("social_rename_record", [USERS_RENAMED()], old, new, *earlier)


async def forget_former_names(valkey: Valkey, username: str) -> None:
    """Forget the former usernames of a deleted account."""
    names = await former_names(valkey, username)
    if names:
        await valkey.call("HDEL", USERS_RENAMED(), *names)
