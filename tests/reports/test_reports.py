"""Reports: who can report what, one open report each, the queue, events, personal data."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from plaza.core.auth import Actor
from plaza.core.clock import ManualClock
from plaza.core.errors import NotFound
from plaza.core.report_source import ReportedThing, ReportSource
from plaza.core.sql import Sql
from plaza.core.sql_events import EVENT_OUTBOX
from plaza.core.valkey import Valkey
from plaza.reports.model import AlreadyReported, NewReport, ReportChange, ReportsQuery
from plaza.reports.personal_data import ReportsPersonalData
from plaza.reports.service import Reports
from tests.servers import Server
from tests.timeouts import connect_for_test

ANA, BEN, ROOT = Actor("ana", "user"), Actor("ben", "user"), Actor("root", "admin")


@dataclass
class StoredPosts:
    """A source of two posts by cleo. Ben does not see the second."""

    kind = "post"
    removal = "ban"

    async def find(self, viewer: Actor, id: str) -> ReportedThing:
        if id not in ("1", "2") or (id == "2" and viewer.name == "ben"):
            raise NotFound("No post has this id.", id=id)
        return ReportedThing(author="cleo", text=f"post {id}", url=f"/{id}")

    async def remove(self, admin: Actor, id: str) -> None:
        return None


@pytest.fixture
async def one_valkey(server: Server) -> AsyncIterator[Valkey]:
    valkey = await connect_for_test(server.url)
    yield valkey
    await valkey.close()


@pytest.fixture
def reports(sql: Sql, one_valkey: Valkey, clock: ManualClock) -> Reports:
    sources: Mapping[str, ReportSource] = {"post": StoredPosts()}
    return Reports(sql, one_valkey, sources, clock)


async def event_types(sql: Sql) -> list[str]:
    return [row.type for row in await sql.fetch_all(EVENT_OUTBOX.select().order_by(EVENT_OUTBOX.c.id))]


async def test_a_user_reports_what_they_see_once_until_it_is_closed(reports: Reports, sql: Sql) -> None:
    first = await reports.create(ANA, NewReport("post", "1", "spam"))
    assert (first.author, first.reporter, first.state) == ("cleo", "ana", "open")
    with pytest.raises(AlreadyReported):
        await reports.create(ANA, NewReport("post", "1", "spam again"))
    await reports.create(BEN, NewReport("post", "1", "rude"))
    for subject, id in (("post", "3"), ("post", "2"), ("article", "1")):
        with pytest.raises(NotFound):
            await reports.create(BEN, NewReport(subject, id, "spam"))  # type: ignore[arg-type]
    await reports.change(ROOT, first.id, ReportChange("dismissed", "fine"))
    again = await reports.create(ANA, NewReport("post", "1", "spam"))
    assert again.id > first.id
    with pytest.raises(AlreadyReported):
        await reports.change(ROOT, first.id, ReportChange("open"))
    assert await event_types(sql) == ["report.created", "report.created", "report.resolved", "report.created"]


async def test_many_reports_at_once_by_one_user_are_one(reports: Reports) -> None:
    new = NewReport("post", "1", "spam")
    results = await asyncio.gather(*(reports.create(ANA, new) for _ in range(10)), return_exceptions=True)
    assert sum(not isinstance(result, AlreadyReported) for result in results) == 1
    assert len((await reports.page(ReportsQuery())).items) == 1


async def test_the_queue_has_the_history_of_the_thing_and_of_its_author(reports: Reports, clock: ManualClock) -> None:
    first = await reports.create(ANA, NewReport("post", "1", "spam"))
    second = await reports.create(BEN, NewReport("post", "1", "spam"))
    third = await reports.create(ANA, NewReport("post", "2", "spam"))
    await reports.change(ROOT, first.id, ReportChange("resolved", "banned"))
    queue = (await reports.page(ReportsQuery())).items
    assert [(each.id, each.subjectReports, each.authorReports) for each in queue] == [
        (third.id, 1, 3),
        (second.id, 2, 3),
    ]
    closed = (await reports.page(ReportsQuery(state="resolved"))).items[0]
    assert (closed.note, closed.admin, closed.closed_at) == ("banned", "root", clock.now_ms())
    everything = await reports.page(ReportsQuery(state="all", author="cleo", limit=2))
    rest = await reports.page(
        ReportsQuery(state="all", author="cleo", limit=2, cursor=everything.pagination.next_cursor)
    )
    assert [each.id for each in (*everything.items, *rest.items)] == [third.id, second.id, first.id]


async def test_personal_data_of_reporters_authors_and_admins(reports: Reports, sql: Sql) -> None:
    made = await reports.create(ANA, NewReport("post", "1", "spam"))
    other = await reports.create(BEN, NewReport("post", "1", "rude"))
    await reports.change(ROOT, made.id, ReportChange("resolved"))
    data = ReportsPersonalData(sql)
    (exported,) = (await data.export("ana"))["reports"]
    assert (exported["reason"], exported["state"]) == ("spam", "resolved")
    assert (await data.export("cleo"))["reports"] == []
    for old, new in (("ana", "anna"), ("cleo", "clea"), ("root", "admin")):
        await data.rename(old, new)
    moved = await reports.get(made.id)
    assert (moved.reporter, moved.author, moved.admin) == ("anna", "clea", "admin")
    await data.delete("admin")
    assert (await reports.get(made.id)).admin == ""
    await data.delete("anna")
    with pytest.raises(NotFound):
        await reports.get(made.id)
    await data.delete("clea")
    remaining: Any = await reports.page(ReportsQuery(state="all"))
    assert remaining.items == []
    assert other.id
