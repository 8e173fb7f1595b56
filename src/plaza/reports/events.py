"""The events of reports. They are added to the transaction that writes the row."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from msgspec import Meta

from plaza.core.events import EventData

STREAM: Final = "reports"


class ReportEvent(EventData):
    subject: ClassVar[str] = "report"
    report: Annotated[int, Meta(description="Id of the report.")]
    kind: Annotated[str, Meta(description="What was reported: `post`, `comment`, `user`, …")]
    thing: Annotated[str, Meta(description="Id of what was reported.")]
    author: Annotated[str, Meta(description="Username of its author.")]
    reporter: Annotated[str, Meta(description="Username of the user who reported it.")]


class ReportCreated(ReportEvent):
    """A user reported something."""

    type: ClassVar[str] = "report.created"


class ReportResolved(ReportEvent):
    """An admin closed a report."""

    type: ClassVar[str] = "report.resolved"
    state: Annotated[str, Meta(description="`resolved` if something was done, `dismissed` if not.")]
    admin: Annotated[str, Meta(description="Username of the admin.")]


class ReportReopened(ReportEvent):
    """An admin opened a closed report again."""

    type: ClassVar[str] = "report.reopened"
    admin: Annotated[str, Meta(description="Username of the admin.")]


EVENTS = (ReportCreated, ReportResolved, ReportReopened)
