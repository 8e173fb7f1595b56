"""The types of reports."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from plaza.core.errors import Conflict
from plaza.core.paging import Page, Pagination
from plaza.core.text_patterns import PLAIN_TEXT, VISIBLE_TEXT
from plaza.core.validation_messages import described_pattern

Subject = Literal["post", "comment", "article", "article_comment", "user", "challenge_post", "challenge_comment"]
State = Literal["open", "resolved", "dismissed"]

MAX_REASON_CHARACTERS: Final = 1_000

ReportId = Annotated[int, Meta(ge=1, lt=2**53, description="The id of a report.", examples=[7])]
_ID = described_pattern("Must be an id or a username", r"^[A-Za-z0-9._-]+$(?!\n)")
ThingId = Annotated[str, Meta(min_length=1, max_length=64, pattern=_ID)]
Reason = Annotated[str, Meta(min_length=1, max_length=MAX_REASON_CHARACTERS, pattern=VISIBLE_TEXT)]
Note = Annotated[str, Meta(max_length=MAX_REASON_CHARACTERS, pattern=PLAIN_TEXT)]
Name = Annotated[str, Meta(max_length=30, pattern=_ID, examples=["ana"])]


class AlreadyReported(Conflict):
    title, code = "You have reported this already", "already_reported"


class ClosedByAnother(Conflict):
    title, code = "Another admin has closed this report", "closed_by_another"


class NewReport(msgspec.Struct, forbid_unknown_fields=True):
    subject: Subject
    id: ThingId
    reason: Reason


class ReportChange(msgspec.Struct, forbid_unknown_fields=True):
    state: State
    note: Note = ""


class Report(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A report. The counts are for admins: open and closed reports of the same thing, and of its author."""

    id: int
    subject: str
    subject_id: str
    author: str
    reporter: str
    reason: str
    state: str
    created_at: int
    note: str = ""
    admin: str = ""
    closed_at: int | None = None
    subjectReports: int | None = None
    authorReports: int | None = None


class ReportsQuery(Page, frozen=True, kw_only=True):
    """The query parameters of the queue."""

    state: Annotated[State | Literal["all"], Meta(description="Which reports to list.")] = "open"
    subject: Annotated[Subject | None, Meta(description="Only reports of such things.")] = None
    author: Annotated[Name | None, Meta(description="Only reports of what this user wrote.")] = None
    subject_id: Annotated[ThingId | None, Meta(description="Only reports of this thing.", examples=["ana"])] = None


class ReportsPage(msgspec.Struct):
    reports: list[Report]
    pagination: Pagination
