"""Writes one key of every declared family with a plain client, for tests of the whole keyspace.

What the user `ana` may not read contains a mark, and secrets contain another. A response to her with a mark is a leak,
whichever rule failed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from plaza.app import catalogues
from plaza.core.keyspace import Key, KeyAccess
from plaza.social import keys as social

MARK: Final = "not-for-ana"
SECRET: Final = "not-for-anyone"
POST: Final = "11111111-1111-4111-8111-111111111111"
BANNED: Final = "22222222-2222-4222-8222-222222222222"

# Sample ids. The first that matches the shape of a part is used for it, so a new family needs no change here.
_SAMPLE_IDS: Final = (
    "food",
    "5",
    POST,
    "f" * 16,
    "a" * 32,
    "c" * 40,
    "d" * 64,
    "5a2",
    "score",
    "2026-11-15",
    "EB9382CA-0376-4558-B271-EA230BDB7EAF",
    "article:",
    "viewed:",
    "db_len",
    "recent_posts_for_category3",
    "follow:user:1",
    "comment:5",
)


def families() -> Iterator[Key]:
    for catalogue in catalogues():
        yield from catalogue.keys.values()


def _id(part: str) -> str:
    shapes = {catalogue.shapes[part] for catalogue in catalogues() if part in catalogue.shapes}
    matching = [id for id in _SAMPLE_IDS if all(re.fullmatch(shape, id) for shape in shapes)]
    assert matching, f"no sample id matches <{part}>: {shapes}"
    return matching[0]


_ids: Final = {part: _id(part) for key in families() for part in key.parts}


def parts_of(key: Key, **ids: str) -> tuple[str, ...]:
    """Ids for the parts of a family's name; `ids` overrides the sample ids."""
    return tuple(ids.get(part) or _ids[part] for part in key.parts)


def is_open(access: KeyAccess, owner: str) -> bool:
    """Whether ana may read a key of this access and owner."""
    return access is KeyAccess.PUBLIC or (access is KeyAccess.SELF and owner == "ana")


async def write_all(client: Any) -> None:
    """Write every family for bob and for ana, and a banned post with a comment."""
    for key in families():
        for owner in ("bob", "ana") if "username" in key.parts else ("",):
            await _write(client, key, key(*parts_of(key, username=owner)), owner)
        if {"post", "comment"} & set(key.parts):
            await _write(client, key, key(*parts_of(key, post=BANNED, comment=BANNED)), "", banned=True)
    await client.hset(social.COMMENT(BANNED), "post_id", BANNED)


async def _write(client: Any, key: Key, name: str, owner: str, *, banned: bool = False) -> None:
    shown = is_open(key.read, owner) and not banned
    closed = SECRET if key.read is KeyAccess.NONE else MARK
    value = "open" if shown else closed
    if key.type == "hash":
        custom = shown and (not key.fields or owner == "ana")
        fields = {field.name: "7" if shown and is_open(field.read, owner) else closed for field in key.fields}
        fields |= {field.name: SECRET for field in key.fields if field.read is KeyAccess.NONE}
        fields |= {"undeclared": "7" if custom else closed}
        if not banned:
            fields.pop("banned", None)
        await client.hset(name, mapping=fields)
    elif key.type == "zset":
        await client.zadd(name, {value: 1})
    elif key.type == "set":
        await client.sadd(name, value)
    elif key.type == "list":
        await client.rpush(name, value)
    elif key.type == "stream":
        await client.xadd(name, {"field": value})
    else:
        await client.set(name, value)


async def dump_all(client: Any) -> dict[str, Any]:
    """All keys and their content."""
    found: dict[str, Any] = {}
    async for name in client.scan_iter(count=1000):
        kind = await client.type(name)
        if kind == "hash":
            found[name] = await client.hgetall(name)
        elif kind == "zset":
            found[name] = await client.zrange(name, 0, -1, withscores=True)
        elif kind == "set":
            found[name] = sorted(await client.smembers(name))
        elif kind == "list":
            found[name] = await client.lrange(name, 0, -1)
        elif kind == "stream":
            found[name] = await client.xrange(name)
        else:
            found[name] = await client.get(name)
    return found
