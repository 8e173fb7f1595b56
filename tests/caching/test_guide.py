"""The programs in docs/caching.md run as printed."""

from __future__ import annotations

import asyncio
import re
import textwrap
from pathlib import Path
from typing import Any

from tests.http_servers import client_of
from tests.servers import Server

GUIDE = Path(__file__).parents[2] / "docs" / "caching.md"
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)


async def test_the_programs_of_the_guide_run_and_have_at_most_ten_lines(server: Server) -> None:
    programs = [code.replace("valkey://localhost:6379", server.url) for code in PYTHON.findall(GUIDE.read_text())]
    rows, pages, handle, key = programs
    for program in programs:
        assert len([line for line in program.splitlines() if line]) <= 10

    async def load(ids: list[str]) -> dict[str, dict[str, Any]]:
        return {id: {"name": "GTab", "qty": 629} for id in ids}

    printed: list[tuple[object, ...]] = []
    names: dict[str, Any] = {"load": load, "asyncio": asyncio, "print": lambda *words: printed.append(words)}
    imports, _, program = rows.partition("\n\n")
    wrapped = f"{imports}\nasync def main():\n{textwrap.indent(program, '    ')}\n    worker.cancel()\n"
    exec(wrapped, names)
    await names["main"]()
    assert printed == [(629, False)]
    exec(pages, names)
    async with client_of(names["app"]) as web:
        assert (await web.get("/items/7")).text == (await web.get("/items/7")).text == "<h1>Item 7</h1>"
        assert await names["app"].purge("item-7") == 1
    exec("from plaza.caching import *", names)
    names["app"] = names["FastAPI"]()
    exec(handle, names)
    exec(key, names)
    assert names["key"].selects_by_cookie
