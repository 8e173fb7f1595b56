"""The export of an imported community is the same file, byte for byte."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from plaza.app import Plaza, running
from plaza.articles.comments import ArticleComments
from plaza.articles.model import ArticleCommentEdit, NewArticle
from plaza.articles.service import Articles
from plaza.challenges.model import NewChallenge
from plaza.challenges.service import Challenges
from plaza.community.records import CommunityPart, Record
from plaza.community.transfer import community_parts, complete_import, export_community
from plaza.core.auth import API, Actor
from plaza.core.keyspace import Layout, use_layout
from plaza.core.pictures import picture_in_address
from plaza.core.settings import Settings
from plaza.desk.notes import UserNotes
from plaza.keyspace.audit import AUDIT, Audits
from plaza.live.heartbeats import LiveService
from plaza.live.history import AudienceHistory
from plaza.live.model import EventDeclaration
from plaza.live.recorder import AudienceRecorder
from plaza.live.statistics import AudienceFigures
from plaza.media.delivery import PictureDelivery
from plaza.media.uploads import Uploads
from plaza.notifications.model import PreferencesChange
from plaza.notifications.service import Notifications
from plaza.reports.model import NewReport
from plaza.reports.service import Reports
from plaza.shop.checkout import Checkout
from plaza.shop.item_desk import ItemDesk
from plaza.shop.items import Items
from plaza.shop.model import ItemChange, NewItem, OrderChange
from plaza.shop.order_desk import OrderDesk
from plaza.social.account_deletion import AccountDeletion
from plaza.social.avatars import Avatars
from plaza.social.comments import Comments
from plaza.social.engagements import Engagements
from plaza.social.inbound_sync import InboundSync
from plaza.social.jsonl_import import BadLine, ImportProgress, JsonlImporter
from plaza.social.model import CommentEdit, NewComment, NewPost, PostEdit, Profile
from plaza.social.posts import Posts
from plaza.social.relations import Relations
from plaza.social.users import Users
from tests.backup.storm import processed_image
from tests.databases import with_tables
from tests.keyspace.audit.sample_community import ADMIN, SampleCommunity, actor, load
from tests.postgres import Postgres
from tests.servers import Cluster, Server

DATA_KEY = "d" * 40


@pytest.fixture(autouse=True)
def layouts() -> Iterator[None]:
    yield
    use_layout(Layout.PLAIN)


async def add_what_the_sample_lacks(plaza: Plaza, community: SampleCommunity) -> None:
    await plaza.get(Articles).vote(actor("ana"), community.articles[0], None)  # the author's own vote
    await plaza.get(Users).suspend(ADMIN, "dora", on=True)
    await plaza.get(Relations).mute(actor("cleo"), "eli")
    await plaza.get(Relations).block(actor("cleo"), "eli")
    await plaza.get(Users).update_profile(actor("ben"), "ben", Profile(bio="Hi", email="ben@example.org", ssn="123"))
    await plaza.get(Checkout).check_out(community.guest)
    _, order = await plaza.get(Checkout).check_out(community.token)
    await plaza.get(OrderDesk).change(order.id, OrderChange(state="paid", note="Call first."))
    await plaza.get(Items).change(order.items[0].id, ItemChange(withdrawn=True))
    await plaza.get(ItemDesk).change_stock(community.items[2], 5)
    await plaza.get(Reports).create(actor("dora"), NewReport("post", community.posts[0], "Rude."))
    await plaza.get(UserNotes).create(ADMIN, "dora", "Warned once.")
    await plaza.get(Notifications).set_preferences(actor("ben"), PreferencesChange(like=False))
    await plaza.get(InboundSync).apply("user", [{"username": "gone"}])
    await plaza.get(Challenges).create(Actor("gone", "user"), NewChallenge("Sing", 3, True, 9), "load-gone")
    await plaza.get(AccountDeletion).delete(Actor("gone", "user"), "gone")
    await plaza.get(Posts).edit(actor("ana"), community.posts[0], PostEdit("Good evening #plaza"))
    edited = ArticleCommentEdit("So it is.")
    await plaza.get(ArticleComments).edit(actor("cleo"), community.article_comments[1], edited)
    await add_audiences(plaza)
    await add_pictures(plaza)


async def add_pictures(plaza: Plaza) -> None:
    """Show a picture in a post beside an address of its own, as an avatar and with an item. Two have the same files."""
    ids = [str(UUID(int=number, version=4)) for number in range(3)]
    for id, seed in zip(ids, ("one", "two", "one"), strict=True):
        await plaza.get(Uploads).store(processed_image(seed), id, actor("ana"), f"A {seed}.")
    await plaza.get(Posts).create(actor("ana"), NewPost("Look", media=[ids[0], ids[1]]))
    await plaza.get(Posts).create(actor("ana"), NewPost("See", media_url="https://example.org/x", media=[ids[1]]))
    await plaza.get(Avatars).set(actor("ana"), ids[2])
    await plaza.get(Items).create(NewItem("Print", "", "1.00", 1, media=[ids[0]]), "load-print", API)


async def add_audiences(plaza: Plaza) -> None:
    """Declare an event, and write what the sample's viewers did to SQL, as the worker does."""
    declared = EventDeclaration("Launch", ["T1", "T2"], ["press"], 1_800_000_000_000, "Our first.")
    await plaza.get(LiveService).declare("E2", declared)
    history = AudienceHistory(plaza.core.sql)
    await AudienceRecorder(plaza.core.functions, history, plaza.core.settings, plaza.core.clock).record()
    await history.save_records("E1", "", {"1800000000000": "{}"})
    await history.reports.save("E1", 1, {("device", "phone", 0): 2})


class WhileUsersWrite:
    """A part during whose export users write: after each of these types of records."""

    def __init__(self, part: CommunityPart, plaza: Plaza, community: SampleCommunity) -> None:
        self.kinds = part.kinds
        self.apply = part.apply
        self.snapshot = part.snapshot
        self._part = part
        self._plaza = plaza
        self._community = community

    async def export(self, kind: str) -> AsyncIterator[Record]:
        async for record in self._part.export(kind):
            yield record
        get, late, ana = self._plaza.get, Actor("late", "user"), actor("ana")
        if kind == "user":
            await get(InboundSync).apply("user", [{"username": "late"}])
            await get(Relations).follow(late, "ana")
            await get(Relations).mute(ana, "late")
            await get(Posts).create(late, NewPost("Too late"))
            await get(Comments).create(late, self._community.posts[1], NewComment("Too late"))
        elif kind == "post":
            post = (await get(Posts).create(ana, NewPost("Too late"))).id
            await get(Engagements).like(ana, post)
            comment = await get(Comments).create(ana, post, NewComment("Too late"))
            await get(Comments).edit(ana, comment.id, CommentEdit("Later"))
        elif kind == "article":
            await get(Articles).post(ana, NewArticle("Too late", "https://example.com/late"), "late")
        elif kind == "challenge":
            made = await get(Challenges).create(ana, NewChallenge("Too late", 3, True, 9), "late")
            await get(Challenges).join(ana, made.id)
        elif kind == "item":
            item = await get(Items).create(NewItem("Late", "", "1.00", 9), "late")
            await get(ItemDesk).change_stock(item.id, 5)


async def exported(plaza: Plaza, file: Path, *, private: bool = False) -> bytes:
    await export_community(community_parts(plaza, private=private), file, lambda kind, count: None)
    return _read_private(file)


def _read_private(file: Path) -> bytes:
    assert file.stat().st_mode & 0o777 == 0o600
    return file.read_bytes()


async def imported(plaza: Plaza, file: Path) -> ImportProgress:
    bad: list[BadLine] = []
    progress = await JsonlImporter(plaza.core.valkey, community_parts(plaza), bad.append).run(file)
    await complete_import(plaza, progress.kinds)
    assert not bad, bad
    return progress


async def import_odd_records(plaza: Plaza, file: bytes) -> None:
    """Import a record of each type with each field changed. A wrong one has a result, and raises nothing."""
    records = {record.pop("type"): record for record in map(json.loads, reversed(file.splitlines()))}
    odd: Iterator[Any] = itertools.cycle((10**30, "\0", {}, -1, "x" * 5_000, None, "a#b"))
    for part in community_parts(plaza):
        for kind in part.kinds:
            for name in [*records[kind], "unknown"]:
                (result,) = await part.apply(kind, [{**records[kind], name: next(odd)}])
                assert result.status != "error" or result.error
            (result,) = await part.apply(kind, [None])
            assert result.status == "error"


async def require_files(plaza: Plaza) -> None:
    ana = await plaza.get(Users).get(None, "ana")
    picture = picture_in_address(ana.avatar)
    assert picture is not None
    assert await plaza.get(PictureDelivery).find(None, picture, "small", "")


@asynccontextmanager
async def empty_plaza(folder: Path, valkey_url: str, database_url: str = "") -> AsyncIterator[Plaza]:
    settings = Settings(data_dir=folder, valkey_url=valkey_url, database_url=database_url, data_key=DATA_KEY)
    async with running(replace(settings, rate_limits=False)) as plaza:
        yield plaza


async def test_one_server_to_a_cluster_with_another_database(
    server: Server, cluster: Cluster, postgres: Postgres, tmp_path: Path
) -> None:
    file = tmp_path / "community.jsonl"
    async with empty_plaza(with_tables(tmp_path), server.url) as plaza:
        community = await load(plaza)
        await add_what_the_sample_lacks(plaza, community)
        public = await exported(plaza, tmp_path / "public.jsonl")
        parts = [WhileUsersWrite(part, plaza, community) for part in community_parts(plaza, private=True)]
        await export_community(parts, file, lambda kind, count: None)
        first = _read_private(file)
        attended = (await plaza.get(AudienceFigures).totals.get("E1")).attended
        assert attended == 5
    for text in (b"password_hash", b"$argon2id$", b"ben@example.org", b'"ssn":"123"'):
        assert text not in public, "only if asked for"
        assert text in first
    assert b'"title":"Sing","category":3,"is_public":true,"duration":9,"creator":""' in first, "a deleted account's"
    kinds = {json.loads(line)["type"] for line in first.splitlines()}
    (tmp_path / "target").mkdir()
    async with (
        postgres.database() as url,
        empty_plaza(tmp_path / "target", cluster.url, url) as plaza,
    ):
        assert kinds == {kind for part in community_parts(plaza) for kind in part.kinds}
        progress = await imported(plaza, file)
        assert progress.counts.keys() <= {"created", "updated", "unchanged"}
        assert await exported(plaza, tmp_path / "again.jsonl", private=True) == first
        await require_files(plaza)
        again = await imported(plaza, file)
        assert again.counts.keys() == {"unchanged"}
        post = json.loads(next(line for line in first.splitlines() if b'"subject":"post"' in line))["id"]
        await plaza.get(Posts).edit(actor("ana"), post, PostEdit("Good night"))
        assert (await plaza.get(Posts).get(None, post)).hashtags == [], "tags of the text go with it"
        assert (await plaza.get(AudienceFigures).totals.get("E1")).attended == attended
        await import_odd_records(plaza, first)
        report = await plaza.get(Audits).run(AUDIT)
        assert report.clean, report.findings
