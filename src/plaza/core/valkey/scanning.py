"""The cursor loop of SCAN, HSCAN, SSCAN and ZSCAN."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from plaza.core.valkey.calls import Arg
from plaza.core.valkey.client import Valkey


async def scan_pages(
    valkey: Valkey, command: str, *key: str, match: str = "", count: int = 1_000, type: str = "", raw: bool = False
) -> AsyncIterator[list[Any]]:
    """Yield the pages of a SCAN, HSCAN, SSCAN or ZSCAN; a page can be empty. One round trip each.

    SCAN has no key and reads one server: call it for each of `valkey.primaries()`. HSCAN and ZSCAN yield flat
    pages, `[name, value, …]`. An element that exists during the whole scan is seen at least once.
    """
    options: list[Arg] = ["COUNT", count]
    if match:
        options += ["MATCH", match]
    if type:
        options += ["TYPE", type]
    cursor: Any = "0"
    while True:
        cursor, page = await valkey.call(command, *key, cursor, *options, raw=raw)
        yield page
        if int(cursor) == 0:
            return
