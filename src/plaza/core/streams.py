"""Streams of bytes that are sent while they are read."""

from __future__ import annotations

from collections.abc import AsyncIterator


async def started(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Read the first chunk now, before a status is sent, so that an error at the start is raised here."""
    first = await anext(chunks, b"")

    async def all_chunks() -> AsyncIterator[bytes]:
        yield first
        async for chunk in chunks:
            yield chunk

    return all_chunks()
