"""JSON documents that are too large for memory: their long lists are async iterators, encoded while they are read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import msgspec

from plaza.core.streams import started

# A chunk is sent when it has this size: few writes, little memory.
CHUNK_BYTES: Final = 32_768

_encode = msgspec.json.Encoder().encode


async def stream_json(document: Mapping[str, Any]) -> AsyncIterator[bytes]:
    """Return the chunks of an object. The first one is read already, so an error at the start is raised here.

    A value may be an object, an async iterator, which becomes a list, or a function without arguments that reads the
    value when it is its turn.
    """
    return await started(_chunks(document))


async def _chunks(document: Mapping[str, Any]) -> AsyncIterator[bytes]:
    chunk = bytearray()
    async for piece in _pieces(document):
        chunk += piece
        if len(chunk) >= CHUNK_BYTES:
            yield bytes(chunk)
            chunk.clear()
    yield bytes(chunk)


async def collect(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with its iterators read into lists."""
    return {name: [item async for item in value] if _is_list(value) else value for name, value in document.items()}


async def has_content(document: Mapping[str, Any]) -> bool:
    """Whether any value of an object is not empty. Of an iterator at most one item is read."""
    for value in document.values():
        if not _is_list(value):
            if value:
                return True
            continue
        async for _ in value:
            return True
    return False


async def _pieces(value: Any) -> AsyncIterator[bytes]:
    if callable(value):
        value = await value()
    if isinstance(value, Mapping):
        yield b"{"
        for n, (name, item) in enumerate(value.items()):
            yield (b"," if n else b"") + _encode(name) + b":"
            async for piece in _pieces(item):
                yield piece
        yield b"}"
    elif _is_list(value):
        yield b"["
        n = 0
        async for item in value:
            yield (b"," if n else b"") + _encode(item)
            n += 1
        yield b"]"
    else:
        yield _encode(value)


def _is_list(value: Any) -> bool:
    return isinstance(value, AsyncIterator)
