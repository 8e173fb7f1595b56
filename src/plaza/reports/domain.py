"""The declaration of reports."""

from __future__ import annotations

from plaza.core.domain import Core, Domain, Parts, Provided
from plaza.reports import routes
from plaza.reports.events import EVENTS
from plaza.reports.library import LIBRARY
from plaza.reports.notification_source import ReportNotifications
from plaza.reports.personal_data import ReportsPersonalData
from plaza.reports.service import Reports


def build(core: Core) -> Parts:
    """Build reports. What needs the things of the other domains is built last."""

    def build_last(provided: Provided) -> Parts:
        sources = {source.kind: source for source in provided.report_sources}
        return Parts([Reports(core.sql, core.valkey, sources, core.clock)])

    return Parts(
        [],
        build_last=build_last,
        personal_data=ReportsPersonalData(core.sql),
        notification_sources=[ReportNotifications(core.sql)],
    )


DOMAIN = Domain(LIBRARY, [routes.route], build, events=EVENTS, uses_all=True)
