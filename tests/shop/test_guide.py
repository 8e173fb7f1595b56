"""The guide's examples are run, in their order; what they show is what is answered."""

from __future__ import annotations

import asyncio
import json
import re
import textwrap
from pathlib import Path
from typing import Any

import httpx

from tests.http_servers import client_of
from tests.servers import Server
from tests.shop.conftest import KEY

GUIDE = Path(__file__).parents[2] / "docs" / "shop.md"
EXAMPLE = re.compile(r"```http\n(\w+) (\S+)(?: as (\w+))?\n(?:\n(.*?)\n)?```\n```json\n(.*?)```", re.DOTALL)
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)


def same(found: Any, expected: Any) -> bool:
    """Equal, where "…" stands for what differs from run to run."""
    if expected == "…":
        return found is not None
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(same(found[name], expected[name]) for name in expected)
    return bool(found == expected)


async def test_the_guides_examples_are_true(web: httpx.AsyncClient) -> None:
    examples = EXAMPLE.findall(GUIDE.read_text())
    assert len(examples) == GUIDE.read_text().count("```http") == 4
    for method, path, who, body, expected in examples:
        answer = await web.request(method, path, content=body, headers=KEY if who else {})
        assert same(answer.json(), json.loads(expected)), (method, path, answer.text)


async def test_the_guides_programs_run_in_ten_lines(server: Server) -> None:
    rows, pages = (code.replace("valkey://localhost:6379", server.url) for code in PYTHON.findall(GUIDE.read_text()))
    for program in (rows, pages):
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
