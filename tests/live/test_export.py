"""Exports of a time range: the same rows as CSV, JSON lines and Parquet, from Valkey and from SQL."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pyarrow.parquet
import pytest

from plaza.core.clock import ManualClock
from plaza.core.functions import Functions
from plaza.core.settings import Settings
from plaza.live import history as history_module
from plaza.live.audience_export import AudienceExport, ExportFormat, TimeRange
from plaza.live.history import AudienceHistory
from plaza.live.recorder import AudienceRecorder
from plaza.live.statistics import AudienceFigures
from plaza.live.viewing_sessions import ViewingSessions
from tests.live.conftest import AT, ViewerActions, Web

ALWAYS = TimeRange(None, None)
SLOT_MS = 300_000


@pytest.fixture
def export(
    functions: Functions, history: AudienceHistory, settings: Settings, clock: ManualClock, figures: AudienceFigures
) -> AudienceExport:
    return AudienceExport(ViewingSessions(functions, history, settings, clock), figures)


async def text_of(chunks: Any) -> bytes:
    return b"".join([chunk if isinstance(chunk, bytes) else chunk.encode() async for chunk in chunks])


def read(format: ExportFormat, content: bytes) -> list[dict[str, Any]]:
    if format == "csv":
        return list(csv.DictReader(io.StringIO(content.decode())))
    if format == "jsonl":
        return [json.loads(line) for line in content.splitlines()]
    return list(pyarrow.parquet.read_table(io.BytesIO(content)).to_pylist())


FORMATS: list[ExportFormat] = ["csv", "jsonl", "parquet"]


async def test_viewing_sessions_of_a_time_range_are_the_same_in_every_format(
    viewers: ViewerActions, export: AudienceExport, recorder: AudienceRecorder, clock: ManualClock
) -> None:
    clock.set(clock.now_ms() // SLOT_MS * SLOT_MS)
    started = clock.now_ms()
    await viewers.beat("ana", "S1")
    clock.advance(seconds=60)
    await viewers.leave("ana", "S1")
    await viewers.beat("=ben")
    clock.advance(seconds=400)
    await recorder.record()
    await viewers.beat("cleo", "S2")
    now = clock.now_ms()
    for span, expected in (
        (ALWAYS, ["=ben", "ana", "cleo"]),
        (TimeRange(None, started + 59_999), ["ana"]),
        (TimeRange(started + 60_001, None), ["cleo"]),
        (TimeRange(started + 60_000, started + 60_000), ["=ben", "ana"]),
        (TimeRange(now + 1, None), ["cleo"]),
    ):
        for format in FORMATS:
            rows = read(format, await text_of(export.viewing_sessions(format, "E1", None, span)))
            assert sorted(row["viewer"].lstrip("'") for row in rows) == expected, (format, span)
    rows = read("jsonl", await text_of(export.viewing_sessions("jsonl", "E1", "S1", ALWAYS)))
    assert rows == [
        {
            "viewer": "ana",
            "session": "S1",
            "location": "web",
            "started_at": started,
            "ended_at": started + 60_000,
            "under_way": False,
        }
    ]
    assert b"'=ben" in await text_of(export.viewing_sessions("csv", "E1", None, ALWAYS)), "no formula for spreadsheets"


async def test_records_come_from_sql_page_by_page_and_from_valkey(
    viewers: ViewerActions,
    export: AudienceExport,
    recorder: AudienceRecorder,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(history_module, "PAGE_SIZE", 2)
    started = clock.now_ms() // SLOT_MS * SLOT_MS
    for slot in range(6):
        clock.set(started + slot * SLOT_MS)
        await viewers.beat("ana", "S1", country="NZ", groups=("crew",))
        if slot == 4:
            await recorder.record()
    clock.set(started + 6 * SLOT_MS)
    ends = [started + slot * SLOT_MS for slot in range(1, 6)]
    for format in FORMATS:
        rows = read(format, await text_of(export.records(format, "E1", None, ALWAYS)))
        assert [int(row["viewers"]) for row in rows] == [0] * 5, "a heartbeat at the start of five minutes has passed"
        assert len(rows) == len(ends)
    rows = read("jsonl", await text_of(export.records("jsonl", "E1", "S1", TimeRange(ends[1], ends[3]))))
    assert [row["at"] for row in rows] == ends[1:4]


async def test_the_routes_stream_files(web: Web) -> None:
    await web.beat(web.user("ana"), session_id="S1")
    for noun in ("viewing-sessions", "records"):
        for format in FORMATS:
            response = await web.client.get(f"{AT}/{noun}.{format}", params={"session": "S1"}, headers=web.admin)
            assert response.status_code == 200, response.text
            assert f'filename="{noun}.{format}"' in response.headers["content-disposition"]
            rows = read(format, response.content)
            assert [row["viewer"] for row in rows if "viewer" in row] == (["ana"] if noun != "records" else [])
    late_first = {"from": 2, "to": 1}
    response = await web.client.get(f"{AT}/viewing-sessions.csv", params=late_first, headers=web.admin)
    assert response.status_code == 422
    denied = await web.client.get(f"{AT}/records.jsonl", headers=web.user("ana"))
    assert denied.status_code == 403
