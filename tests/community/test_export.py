"""An export beside users who write, of data that other services wrote too."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from sqlalchemy import insert, select, update

from plaza.app import Plaza
from plaza.articles.keys import ARTICLE_COMMENT, ARTICLE_COMMENTS, ARTICLES_BY_TIME
from plaza.articles.model import NewArticle
from plaza.articles.service import Articles
from plaza.community import social_export, transfer
from plaza.community.challenge_records import challenge_part
from plaza.community.records import Record
from plaza.community.references import WrittenRecords
from plaza.community.shop_records import shop_part
from plaza.community.transfer import community_parts, export_community
from plaza.core import search_source
from plaza.core.sql import Sql
from plaza.media.object_store import MediaStore
from plaza.media.tables import CONTENTS
from plaza.media.uploads import Uploads
from plaza.shop.tables import ITEMS, LINES, ORDERS
from plaza.social.inbound_sync import InboundSync
from plaza.social.keys import COMMENT, POST_COMMENTS, POST_LIKES_RECENT, USER_FOLLOWING_RECENT, USER_POSTS
from tests.backup.storm import processed_image
from tests.community.test_round_trip import empty_plaza
from tests.databases import with_tables
from tests.keyspace.audit.sample_community import actor
from tests.servers import Server

POST = "00000000-0000-4000-8000-000000000001"


async def exported(plaza: Plaza, folder: Path) -> list[Record]:
    file = folder / "community.jsonl"
    await export_community(community_parts(plaza), file, lambda kind, count: None)
    return [json.loads(line) for line in file.read_text().splitlines()]


async def test_a_picture_that_is_deleted_meanwhile_is_left_out(server: Server, tmp_path: Path) -> None:
    async with empty_plaza(with_tables(tmp_path), server.url) as plaza:
        await plaza.get(InboundSync).apply("user", [{"username": "ana"}])
        ids = [str(UUID(int=number, version=4)) for number in range(2)]
        for id in ids:
            await plaza.get(Uploads).store(processed_image(id), id, actor("ana"), "A lake.")
        store = MediaStore.open(plaza.core.settings)
        (gone,) = [row.path for row in await plaza.core.sql.fetch_all(select(CONTENTS).limit(1))]
        await store.delete([file.path async for page in store.list() for file in page if file.path.startswith(gone)])
        kinds = [record["type"] for record in await exported(plaza, tmp_path)]
        assert (kinds.count("picture_content"), kinds.count("picture")) == (1, 1)


async def test_odd_data_of_other_services_stops_no_export(server: Server, tmp_path: Path) -> None:
    async with empty_plaza(with_tables(tmp_path), server.url) as plaza:
        await plaza.get(InboundSync).apply("user", [{"username": "ana"}])
        await plaza.get(InboundSync).apply("post", [{"id": POST, "username": "ana", "content": "Lake"}])
        comment = {"id": str(uuid4()), "post_id": POST, "username": "ana", "content": "Yes"}
        await plaza.get(InboundSync).apply("comment", [comment])
        article = (await plaza.get(Articles).post(actor("ana"), NewArticle("Lake", "https://lake.example"), "a")).id
        with server.redis_client() as client:
            for field in ("username", "content"):
                id, note = str(uuid4()), uuid4().hex
                client.rpush(POST_COMMENTS(POST), id)
                client.hset(COMMENT(id), field, "ana")
                client.zadd(ARTICLE_COMMENTS(article), {note: "inf"})
                client.hset(ARTICLE_COMMENT(article, note), field, "ana")
            client.zadd(ARTICLE_COMMENTS(article), {"-odd-": "-inf"})
            client.zadd(ARTICLES_BY_TIME(), {"article:٣": 1, "article:" + "9" * 5_000: 1})
            client.zadd(USER_POSTS("ana"), {POST: "inf"})
            client.zadd(POST_LIKES_RECENT(POST), {"ana": "inf"})
        records = await exported(plaza, tmp_path)
        assert [record["id"] for record in records if record["type"] == "comment"] == [comment["id"]]
        assert [record["id"] for record in records if record["type"] == "article"] == [article]
        assert [record["created_at"] for record in records if record["type"] == "like"] == [0]


async def test_an_unlike_meanwhile_hides_no_other_like(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_source, "SCAN_BATCH", 2)
    monkeypatch.setattr(social_export, "PAGE", 2)
    names = [f"user{number}" for number in range(7)]
    async with empty_plaza(with_tables(tmp_path), server.url) as plaza:
        await plaza.get(InboundSync).apply("user", [{"username": name} for name in names])
        await plaza.get(InboundSync).apply("post", [{"id": POST, "username": "user0", "content": "Lake"}])
        likes = [{"username": name, "post_id": POST, "created_at": at} for at, name in enumerate(names)]
        await plaza.get(InboundSync).apply("like", likes)
        social, *_ = community_parts(plaza)
        found: list[str] = []
        async for record in social.export("like"):
            found.append(record["username"])
            if len(found) == 2:
                await plaza.core.valkey.call("ZREM", POST_LIKES_RECENT(POST), "user0", "user1")
        assert found == names


async def test_the_stock_and_the_orders_of_a_file_are_of_one_moment(sql: Sql) -> None:
    item = {"id": 1, "name": "Cup", "description": "", "price": 100, "qty": 10, "version": 1}
    order = {"id": 1, "cart": "c", "buyer": "user:ana", "created_ms": 1, "total": 300}
    async with sql.begin() as tx:
        await tx.execute(insert(ITEMS).values(item))
    shop = shop_part(sql)
    async with shop.snapshot():
        (sold,) = [record async for record in shop.export("item")]
        async with sql.begin() as tx:
            await tx.execute(update(ITEMS).values(qty=7))
            await tx.execute(insert(ORDERS).values(order))
            await tx.execute(insert(LINES).values(order_id=1, item_id=1, name="Cup", price=100, qty=3))
        later = [record for kind in ("order", "order_line") async for record in shop.export(kind)]
    assert (sold["qty"], later) == (10, [])
    async with shop.snapshot():
        assert [record["qty"] for kind in ("item", "order_line") async for record in shop.export(kind)] == [7, 3]


async def test_numbers_that_a_column_cannot_store_are_refused(sql: Sql) -> None:
    challenge = {"id": 1, "title": "Run", "category": 1, "is_public": True, "duration": 3_000_000_000}
    challenge |= {"creator": "", "created_ms": 1, "ends_day": "2030-01-01"}
    (refused,) = await challenge_part(sql).apply("challenge", [challenge])
    assert (refused.status, refused.field) == ("error", "duration")
    item = {"id": 1, "name": "Cup", "description": "", "price": "1.00", "qty": 3_000_000_000}
    (created,) = await shop_part(sql).apply("item", [item])
    assert created.status == "created", created


def test_two_exports_to_one_file_each_write_their_own(tmp_path: Path) -> None:
    file = tmp_path / "community.jsonl"
    with transfer._replaced(file) as first:
        first.write(b"first, ")
        with transfer._replaced(file) as second:
            second.write(b"second")
        assert file.read_bytes() == b"second"
        first.write(b"complete")
    assert file.read_bytes() == b"first, complete"
    assert list(tmp_path.iterdir()) == [file]


def test_pictures_that_came_too_late_are_left_out_of_what_shows_them() -> None:
    written = WrittenRecords(["post", "picture", "post_pictures", "item"])
    assert written.complete("picture", {"id": "old"})
    assert written.complete("post", {"id": POST})
    old, late = {"id": "old"}, {"id": "late"}
    shown = written.complete("post_pictures", {"post_id": POST, "media": [late, old], "is_address": True})
    assert shown == {"post_id": POST, "media": [old], "is_address": False}
    shown = written.complete("post_pictures", {"post_id": POST, "media": [old, late], "is_address": True})
    assert shown == {"post_id": POST, "media": [old], "is_address": True}
    assert written.complete("post_pictures", {"post_id": POST, "media": [late], "is_address": True}) is None
    assert written.complete("item", {"id": 1, "media": [late]}) == {"id": 1, "media": []}


async def test_an_export_counts_what_it_leaves_out(server: Server, tmp_path: Path) -> None:
    async with empty_plaza(with_tables(tmp_path), server.url) as plaza:
        await plaza.get(InboundSync).apply("user", [{"username": "ana"}])
        await plaza.core.valkey.call("ZADD", USER_FOLLOWING_RECENT("ana"), 1, "gone")
        done = await export_community(community_parts(plaza), tmp_path / "file", lambda kind, count: None)
        assert (dict(done.counts), done.left_out) == ({"user": 1}, 1)
