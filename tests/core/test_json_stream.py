"""Large JSON documents are sent piece by piece."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from plaza.core.errors import Unavailable
from plaza.core.json_stream import CHUNK_BYTES, collect, has_content, stream_json


async def items(count: int, read: list[int] | None = None) -> AsyncIterator[dict[str, int]]:
    for n in range(count):
        if read is not None:
            read.append(n)
        yield {"n": n}


async def test_a_stream_is_the_document() -> None:
    async def later() -> dict[str, Any]:
        return {"more": items(2), "none": items(0)}

    document = {"id": "ana", 'é"': None, "list": items(3), "inner": {"a": [1], "b": items(1)}, "later": later}
    chunks = [chunk async for chunk in await stream_json(document)]
    assert json.loads(b"".join(chunks)) == {
        "id": "ana",
        'é"': None,
        "list": [{"n": 0}, {"n": 1}, {"n": 2}],
        "inner": {"a": [1], "b": [{"n": 0}]},
        "later": {"more": [{"n": 0}, {"n": 1}], "none": []},
    }


async def test_items_are_read_only_as_fast_as_they_are_sent() -> None:
    read: list[int] = []
    chunks = await stream_json({"list": items(100_000, read)})
    await anext(chunks)
    assert 0 < len(read) < CHUNK_BYTES
    assert all(len(chunk) < 2 * CHUNK_BYTES for chunk in [chunk async for chunk in chunks])
    assert len(read) == 100_000


async def test_an_error_at_the_start_is_raised_before_the_stream() -> None:
    async def fails() -> dict[str, Any]:
        raise Unavailable

    with pytest.raises(Unavailable):
        await stream_json({"id": 1, "domain": fails})


async def test_content_is_found_without_reading_everything() -> None:
    read: list[int] = []
    assert await has_content({"a": [], "b": items(1_000, read)})
    assert read == [0]
    assert not await has_content({"a": [], "b": None, "c": items(0)})
    assert await collect({"a": 1, "b": items(1)}) == {"a": 1, "b": [{"n": 0}]}
