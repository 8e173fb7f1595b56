"""Runs the guide's examples in order and compares the responses with those shown."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx

from plaza.core.auth import API, Actor
from tests.social.conftest import Social

GUIDE = Path(__file__).parents[2] / "docs" / "social.md"
EXAMPLE = re.compile(r"```http\n(\w+) (\S+)(?: as ([\w ]+))?\n(?:\n(.*?)\n)?```\n```json\n(.*?)```", re.DOTALL)


async def test_the_guides_examples_return_the_responses_shown(
    social: Social, http: httpx.AsyncClient, bob: Actor
) -> None:
    examples = EXAMPLE.findall(GUIDE.read_text())
    assert len(examples) == GUIDE.read_text().count("```http") > 3
    last = ""
    for method, path, caller, body, expected in examples:
        headers = social.token(API if "key" in caller else Actor(caller, "user")) if caller else {}
        answer = await http.request(method, path.replace("{id}", last), content=body, headers=headers)
        found = answer.json()
        assert matches(found, json.loads(expected)), (method, path, found)
        last = found.get("id", last)


def matches(found: Any, shown: Any) -> bool:
    """Return whether a response equals the one shown, where `…` stands for varying text."""
    if isinstance(shown, dict):
        return (
            isinstance(found, dict) and found.keys() == shown.keys() and all(matches(found[n], shown[n]) for n in shown)
        )
    if isinstance(shown, list):
        return len(found) == len(shown) and all(map(matches, found, shown))
    if isinstance(shown, str) and shown.endswith("…"):
        return isinstance(found, str) and found.startswith(shown[:-1])
    return bool(found == shown)
