"""Streams are stored in chunks that later streams share, and that are checked when they are read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from plaza.backup.chunks import BrokenBackup, ChunkStore

DATA = Random(1).randbytes(6_000_000)


async def stream(data: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(data), 70_000):
        yield data[at : at + 70_000]


async def test_after_an_insertion_most_chunks_are_the_same(tmp_path: Path) -> None:
    chunks = ChunkStore(tmp_path)
    first = await chunks.put(stream(DATA))
    written = chunks.written_bytes
    second = await chunks.put(stream(b"inserted" + DATA[:3_000_000] + b"also" + DATA[3_000_000:]))
    assert await chunks.read_all(first) == DATA
    assert await chunks.read_all(second) == b"inserted" + DATA[:3_000_000] + b"also" + DATA[3_000_000:]
    assert len(first.chunks) > 5
    assert chunks.written_bytes - written < written / 2


async def test_a_few_changes_here_and_there_store_a_small_part_again(tmp_path: Path) -> None:
    """As of keys: with 0.1% of 8,000 values of 750 bytes changed."""
    chunks, values = ChunkStore(tmp_path), [DATA[at : at + 749] + b"\n" for at in range(0, len(DATA), 750)]
    await chunks.put(stream(b"".join(values)))
    written = chunks.written_bytes
    for number in Random(2).sample(range(len(values)), 8):
        values[number] = b"changed\n"
    await chunks.put(stream(b"".join(values)))
    assert chunks.written_bytes - written < written / 10


async def test_a_missing_or_changed_chunk_is_refused(tmp_path: Path) -> None:
    chunks = ChunkStore(tmp_path)
    stored = await chunks.put(stream(b"a community"))
    file = tmp_path / stored.chunks[0][:2] / stored.chunks[0]
    content = file.read_bytes()
    for changed in (content[:-1], b"", content[:5] + b"\0" + content[6:]):
        file.write_bytes(changed)
        with pytest.raises(BrokenBackup, match=f"{file.name} was changed"):
            await chunks.read_all(stored)
    file.unlink()
    with pytest.raises(BrokenBackup, match=f"{file.name} is missing"):
        await chunks.read_all(stored)


async def test_a_later_backup_replaces_a_damaged_chunk(tmp_path: Path) -> None:
    stored = await ChunkStore(tmp_path).put(stream(b"a community"))
    file = tmp_path / stored.chunks[0][:2] / stored.chunks[0]
    file.write_bytes(file.read_bytes()[:-1])
    later = ChunkStore(tmp_path)
    assert not later.has(stored)
    assert await later.put(stream(b"a community")) == stored
    assert later.replaced == 1
    assert await later.read_all(stored) == b"a community"
