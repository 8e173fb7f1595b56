"""The declaration of the `live` domain."""

from __future__ import annotations

from plaza.core.domain import Core, Domain, Parts
from plaza.live.address_salts import AddressSalts
from plaza.live.audience_export import AudienceExport
from plaza.live.events import EVENTS
from plaza.live.geo import GeoIp, GeoLocator
from plaza.live.heartbeats import LiveService
from plaza.live.history import AudienceHistory
from plaza.live.invariants import INVARIANTS
from plaza.live.jobs import timers
from plaza.live.last_seen_report import HeartbeatReports
from plaza.live.library import LIBRARY
from plaza.live.personal_data import LivePersonalData
from plaza.live.player_reports import PlayerReports
from plaza.live.recorder import AudienceRecorder
from plaza.live.retention import Retention
from plaza.live.routes import route
from plaza.live.routes_export import route as export_route
from plaza.live.schedule import EventSchedule
from plaza.live.statistics import AudienceFigures
from plaza.live.stream import FigureStreams
from plaza.live.viewers import ViewerAuthenticator
from plaza.live.viewing_sessions import ViewingSessions


def build(core: Core) -> Parts:
    settings, clock = core.settings, core.clock
    history = AudienceHistory(core.sql)
    viewing_sessions = ViewingSessions(core.functions, history, settings, clock)
    figures = AudienceFigures(core.functions, history, settings, clock)
    stream = FigureStreams(core.valkey, figures)
    personal_data = LivePersonalData(core.functions, history, viewing_sessions)
    hashed, salts = settings.live_address == "hashed", AddressSalts(core.valkey, clock)
    geo = GeoLocator(salts, settings.live_address, GeoIp.open(settings.geoip))
    reports = PlayerReports(core.functions, history.reports, settings)
    live = LiveService(core.functions, settings, clock, reports=reports)
    return Parts(
        [
            live,
            history,
            EventSchedule(core.valkey, live, figures, clock),
            ViewerAuthenticator(core.auth, geo, settings, clock),
            figures,
            viewing_sessions,
            AudienceExport(viewing_sessions, figures),
            reports,
            Retention(viewing_sessions, figures.totals, clock),
            HeartbeatReports(core.functions, history, settings, clock),
            stream,
            personal_data,
        ],
        timers=timers(AudienceRecorder(core.functions, history, settings, clock), salts if hashed else None),
        personal_data=personal_data,
        on_close=[stream.close],
    )


DOMAIN = Domain(LIBRARY, [route, export_route], build, INVARIANTS, EVENTS)
