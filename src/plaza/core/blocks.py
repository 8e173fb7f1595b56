"""Which users a block hides from a viewer."""

from __future__ import annotations

from collections.abc import Collection

from plaza.core.auth import Actor
from plaza.core.domain import BlockLists
from plaza.core.valkey import Valkey


async def names_hidden_from(
    valkey: Valkey, blocks: BlockLists | None, viewer: Actor | None, names: Collection[str]
) -> set[str]:
    """Return those of these users that a block hides from the viewer. At most one round trip."""
    if viewer is None or viewer.via_key or blocks is None or not names:
        return set()
    ordered = sorted(names)
    scores = await valkey.batch([("ZMSCORE", key, *ordered) for key in blocks.block_list_keys(viewer)])
    return {name for found in scores for name, score in zip(ordered, found, strict=True) if score is not None}
