"""Lists are split into chunks, flat replies are read as pairs."""

from __future__ import annotations

import pytest

from plaza.core.sequences import chunks, pairs, pairs_to_dict
from plaza.core.valkey import Valkey, scan_pages


def test_chunks_keep_the_order_and_the_last_one_may_be_shorter() -> None:
    assert list(chunks([1, 2, 3, 4, 5], 2)) == [[1, 2], [3, 4], [5]]
    assert list(chunks([], 2)) == []


def test_a_flat_reply_is_read_as_pairs() -> None:
    assert pairs(["a", "1", "b", "2"]) == [("a", "1"), ("b", "2")]
    assert pairs_to_dict(["a", "1", "b", "2"]) == {"a": "1", "b": "2"}
    with pytest.raises(ValueError, match="shorter"):
        pairs(["a"])


async def test_scan_pages_reads_a_whole_key(valkey: Valkey) -> None:
    names = {f"name{i}" for i in range(3_000)}
    await valkey.call("SADD", "names", *names)
    pages = [page async for page in scan_pages(valkey, "SSCAN", "names", count=100)]
    assert len(pages) > 1
    assert {name for page in pages for name in page} == names
    assert [page async for page in scan_pages(valkey, "SSCAN", "names", match="name7", count=5_000)] == [["name7"]]


@pytest.mark.parametrize("raw", [False, True])
async def test_scan_pages_reads_the_names_of_a_server(valkey: Valkey, raw: bool) -> None:
    await valkey.call("SET", "text", "1")
    await valkey.call("HSET", "hash", "field", "1")
    found = [
        name
        for node in valkey.primaries()
        async for page in scan_pages(node, "SCAN", type="hash", raw=raw)
        for name in page
    ]
    assert found == [b"hash" if raw else "hash"]
