"""One key of every family in the catalogue, written by a plain client: what looks at the whole keyspace needs one.

What a person called `ana` may not see holds a mark, and what nobody may another, so that any answer to her that has one
is a leak, whatever the rule was that should have kept it.
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

# What ids look like. The first that fits the shape of a part stands for it, so a new family needs nothing here.
_LIKELY: Final = (
    "food",
    "5",
    POST,
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
)


def families() -> Iterator[Key]:
    for catalogue in catalogues():
        yield from catalogue.keys.values()


def _id(part: str) -> str:
    shapes = {catalogue.shapes[part] for catalogue in catalogues() if part in catalogue.shapes}
    fitting = [id for id in _LIKELY if all(re.fullmatch(shape, id) for shape in shapes)]
    assert fitting, f"no id here is like a <{part}>: {shapes}"
    return fitting[0]


_ids: Final = {part: _id(part) for key in families() for part in key.parts}


def parts_of(key: Key, **ids: str) -> tuple[str, ...]:
    """Ids that fit a family; others than the usual ones by their part."""
    return tuple(ids.get(part) or _ids[part] for part in key.parts)


def is_open(access: KeyAccess, owner: str) -> bool:
    """Whether ana may see what is marked so and is somebody's."""
    return access is KeyAccess.PUBLIC or (access is KeyAccess.SELF and owner == "ana")


async def write_all(client: Any) -> None:
    """Every family for bob and for ana, and a banned post besides, with a comment on it."""
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
    """All there is, as a plain client reads it."""
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
