"""A bulk-imported post equals one imported record by record."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from plaza.core.auth import Actor
from plaza.social.bulk_import import BulkImport
from plaza.social.inbound_sync import CommentRecord, FollowRecord, InboundSync, MarkRecord, PostRecord
from plaza.social.model import NoProfile
from tests.social.conftest import ADMIN, Social
from tests.social.consistency import read_all, violations

USERS = ("ana", "ben", "cem", "dan")


def make_records(n: int, created: int) -> tuple[PostRecord, list[MarkRecord], list[CommentRecord]]:
    """Return a post with its likes and comments."""
    id = str(uuid.UUID(int=n, version=4))
    likes = [MarkRecord(name, id, created + 10 + at) for at, name in enumerate(USERS[: n % 5])]
    comments = [
        CommentRecord(str(uuid.UUID(int=100 * n + at, version=4)), id, USERS[at], f"{at} <b>", created + 50 - at)
        for at in range(n % 4)
    ]
    return PostRecord(id, "mia", f"No. {n} #tea #t{n % 3}", created_at=created), likes, comments


async def test_a_bulk_import_equals_single_imports(social: Social, redis_client: Any) -> None:
    sync: InboundSync = social.parts[InboundSync]
    now = social.clock.now_ms()
    await sync.apply("user", [{"username": "mia", "role": "model"}, *({"username": name} for name in USERS)])
    # Nine recent posts, which are ranked, and one that is too old for the ranking.
    records = [make_records(n, now - n * 3_600_000) for n in range(1, 10)] + [make_records(10, now - 20 * 86_400_000)]
    bulk_import = BulkImport(sync)
    for post_records in records:
        assert await bulk_import.import_post(*post_records)
    imported = await read_all(redis_client)
    assert violations(imported, now) == []
    for post_records in records:
        assert not await bulk_import.import_post(*post_records), "it is already imported"
    assert await read_all(redis_client) == imported

    for post, _, _ in records:
        await social.posts.delete(ADMIN, post.id)
    for post, likes, comments in records:
        await sync.apply("post", [post])
        await sync.apply("like", likes)
        await sync.apply("comment", comments)
    one_by_one = await read_all(redis_client)
    changed = {family for family in imported if imported[family] != one_by_one[family]}
    assert changed <= {"feeds_drop", "user_points"}
    assert one_by_one["user_points"]["mia",]["total"] == imported["user_points"]["mia",]["total"]


async def test_importing_many_follows_equals_single_follows(social: Social, redis_client: Any) -> None:
    now = social.clock.now_ms()
    await social.sync.apply("user", [{"username": name} for name in ("mia", *USERS)])
    follows = [FollowRecord("mia", name, now - 10 * n) for n, name in enumerate(USERS)]
    bulk_import = BulkImport(social.sync)
    assert await bulk_import.import_follows("mia", follows[:2]) == 2
    assert await bulk_import.import_follows("mia", follows) == 2, "only new follows count"
    assert await bulk_import.import_follows("mia", follows) == 0
    imported = await read_all(redis_client)
    assert violations(imported, now) == []
    assert imported["user"]["mia",]["followingCount"] == "4"
    for name in USERS:
        await social.relations.unfollow(Actor("mia", "user"), name)
    await social.sync.apply("follow", follows)
    assert await read_all(redis_client) == imported
    with pytest.raises(NoProfile):
        await bulk_import.import_follows("missing", [FollowRecord("missing", "mia")])
    assert await bulk_import.import_follows("mia", [FollowRecord("mia", "absent")]) == 1
    await social.functions.outbox.drain()
    assert violations(await read_all(redis_client), now) == [], "a follow of a missing user is withdrawn"
