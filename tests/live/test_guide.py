"""Runs the examples of docs/live.md in order and compares the responses, except for times."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from plaza.core.clock import ManualClock
from tests.live.conftest import Web

GUIDE = Path(__file__).parents[2] / "docs" / "live.md"
EXAMPLE = re.compile(r"```http\n(\w+) (\S+) as (\w+)\n(?:\n(.*?)\n)?```\n```json\n(.*?)```", re.DOTALL)
TIMES = {"timestamp", "last_beat"}


async def test_the_examples_of_the_guide_are_right(no_record_is_due: ManualClock, web: Web) -> None:
    examples = EXAMPLE.findall(GUIDE.read_text())
    assert len(examples) == GUIDE.read_text().count("```http")
    for method, path, who, body, expected in examples:
        no_record_is_due.advance(seconds=0.001)
        headers = web.admin if who == "admin" else web.user(who)
        response = await web.client.request(method, path, content=body, headers=headers)
        assert without_times(response.json()) == json.loads(expected), (method, path)


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: 0 if key in TIMES and each else without_times(each) for key, each in value.items()}
    if isinstance(value, list):
        return [without_times(each) for each in value]
    return value
