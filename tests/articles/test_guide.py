"""The guide's examples run in their order and return what the guide shows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx

from tests.articles.conftest import bearer

GUIDE = Path(__file__).parents[2] / "docs" / "articles.md"
EXAMPLE = re.compile(r"```http\n(\w+) (\S+)(?: as (\w+))?\n(?:\n(.*?)\n)?```\n```json\n(.*?)```", re.DOTALL)


async def test_the_guides_examples_return_what_it_shows(http: httpx.AsyncClient) -> None:
    examples = EXAMPLE.findall(GUIDE.read_text())
    assert len(examples) == GUIDE.read_text().count("```http")
    for method, path, username, body, expected in examples:
        answer = await http.request(method, path, content=body, headers=bearer(username or "ana"))
        found = answer.json()
        found.pop("request_id", None)  # differs each time
        assert found == json.loads(expected), (method, path)
