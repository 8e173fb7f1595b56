"""How live plugs in."""

from __future__ import annotations

from plaza.core.domain import Core, Domain, Parts
from plaza.live.address_salts import Salts
from plaza.live.geo import GeoIp, Places
from plaza.live.history import History
from plaza.live.invariants import INVARIANTS
from plaza.live.jobs import timers
from plaza.live.library import LIBRARY
from plaza.live.personal_data import People
from plaza.live.recorder import Recorder
from plaza.live.routes import route
from plaza.live.schedule import Programme
from plaza.live.service import Live
from plaza.live.statistics import Figures
from plaza.live.stream import Stream
from plaza.live.viewer_report import Reports
from plaza.live.viewers import Viewers
from plaza.live.viewing_sessions import Viewings


def build(core: Core) -> Parts:
    settings, clock = core.settings, core.clock
    history = History(core.sql)
    viewings = Viewings(core.functions, history, settings, clock)
    figures = Figures(core.functions, history, settings, clock)
    stream = Stream(core.valkey, figures)
    people = People(core.functions, history, viewings)
    hashed, salts = settings.live_address == "hashed", Salts(core.valkey, clock)
    places = Places(salts, settings.live_address, GeoIp.read(settings.geoip))
    live = Live(core.functions, settings, clock)
    return Parts(
        [
            live,
            Programme(core.valkey, live, figures),
            Viewers(core.auth, places, settings, clock),
            figures,
            viewings,
            Reports(core.functions, history, settings, clock),
            stream,
            people,
        ],
        timers(Recorder(core.functions, history, settings, clock), salts if hashed else None),
        personal_data=people,
        ends=[stream.close],
    )


DOMAIN = Domain(LIBRARY, [route], build, INVARIANTS)
