"""The requests in docs/shop.md get the responses that it shows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx

from tests.shop.conftest import KEY

GUIDE = Path(__file__).parents[2] / "docs" / "shop.md"
EXAMPLE = re.compile(r"```http\n(\w+) (\S+)(?: as (\w+))?\n(?:\n(.*?)\n)?```\n```json\n(.*?)```", re.DOTALL)


def same(found: Any, expected: Any) -> bool:
    """Equal, where "…" stands for what differs from run to run."""
    if expected == "…":
        return found is not None
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(same(found[name], expected[name]) for name in expected)
    return bool(found == expected)


async def test_the_examples_of_the_guide_are_true(web: httpx.AsyncClient) -> None:
    examples = EXAMPLE.findall(GUIDE.read_text())
    assert len(examples) == GUIDE.read_text().count("```http") == 6
    for method, path, who, body, expected in examples:
        answer = await web.request(method, path, content=body, headers=KEY if who else {})
        assert same(answer.json(), json.loads(expected)), (method, path, answer.text)
