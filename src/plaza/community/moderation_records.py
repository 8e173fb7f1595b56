"""Reports and operators' notes about users as records: the rows of their tables."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from plaza.community.challenge_records import RowId
from plaza.community.records import RowRecords, TablePart
from plaza.core.sql import Sql
from plaza.desk.tables import USER_NOTES
from plaza.reports.model import State, Subject
from plaza.reports.tables import REPORTS
from plaza.social.model import Millis, Username

Name = Annotated[str, Meta(max_length=60)]


class _ReportRecord(msgspec.Struct, forbid_unknown_fields=True):
    id: RowId
    kind: Subject
    thing: Annotated[str, Meta(min_length=1, max_length=64)]
    author: Name
    reporter: Name
    reason: str
    state: State
    note: str
    admin: Name
    created_ms: Millis
    closed_ms: Millis | None = None


class _UserNoteRecord(msgspec.Struct, forbid_unknown_fields=True):
    id: RowId
    username: Username
    author: Name  # empty if the account was deleted
    text: str
    created_ms: Millis


_REPORT: Final = {"report": RowRecords(REPORTS, _ReportRecord)}
_NOTE: Final = {"user_note": RowRecords(USER_NOTES, _UserNoteRecord)}


def report_part(sql: Sql) -> TablePart:
    return TablePart(sql, _REPORT)


def note_part(sql: Sql) -> TablePart:
    return TablePart(sql, _NOTE)
