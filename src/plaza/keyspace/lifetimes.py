"""Cuts lifetimes to those that the catalogues declare.

Valkey stores until when a key lives. When its clock is set back, all keys live longer by that step: a ranking that is
computed every minute would be an hour old.
"""

from __future__ import annotations

from plaza.core.functions import Functions
from plaza.core.sequences import chunks
from plaza.core.valkey import scan_pages
from plaza.keyspace.audit.scanner import BATCH_COMMANDS_BUSY, PAGE_KEYS
from plaza.keyspace.audit.throttle import Throttle
from plaza.keyspace.family_matching import KeyFamilies


async def cut_lifetimes(functions: Functions, families: KeyFamilies) -> None:
    """Scan all keys, and cut the lifetime of those that expire later than declared. As gentle as an audit."""
    valkey = functions.valkey
    throttle = Throttle(valkey)
    await throttle.begin()
    for node in valkey.primaries():
        async for names in scan_pages(node, "SCAN", count=PAGE_KEYS):
            found = [(name, match[0].key.ttl_seconds) for name in names if (match := families.match(name))]
            # XX: a key that does not expire stays so.
            cuts = [("PEXPIRE", name, ttl * 1000, "XX", "LT") for name, ttl in found if ttl]
            for batch in chunks(cuts, BATCH_COMMANDS_BUSY):
                await valkey.batch(batch)
            await throttle.rest()
