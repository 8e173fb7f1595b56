"""For operators: how Plaza is doing, which jobs ran, what the last audit found; buttons for an audit and the demo."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from msgspec import Struct

from plaza.core.auth import Actor
from plaza.core.errors import Conflict
from plaza.core.http.request import Call
from plaza.core.http.responses import EVENTS, Answer, Event
from plaza.keyspace.audit import Audits, Report
from plaza.keyspace.browsing import Keyspace
from plaza.web import forms
from plaza.web.rendering import render
from plaza.web.routes_operator import SECTION, operator, tabs
from plaza.web.routing import PageRoutes
from plaza.web.site import Site
from plaza.web.vitals import Figures, Vitals

page = PageRoutes()

TICK_SECONDS: Final = 2.0
# Five minutes; then the browser asks again, and who is no admin any more is refused.
MOST_SENT: Final = 150


class Progress(Struct):
    """How far an audit is; `keys` of `total`."""

    keys: int
    total: int
    findings: int


class Beat(Struct):
    """What the page is sent every two seconds."""

    figures: Figures
    audit: Progress | None
    jobs: str  # the table, as HTML
    audited: int  # when the last audit ended


@page.get("/operator/health")
async def health(call: Call, site: Site, vitals: Vitals, audits: Audits, keyspace: Keyspace) -> Answer[str]:
    """Throughput, latency, Valkey, jobs, audits and the demo."""
    who = await operator(call, site)
    return site.page(
        call,
        who,
        "operator-health.html",
        section=SECTION,
        **tabs("Health"),
        figures=await vitals.now(),
        jobs=await vitals.jobs(),
        demo=await site.demo.is_on(),
        **await _audit(audits, keyspace, who.admin()),
    )


@page.get("/operator/health/stream", media_type=EVENTS)
async def stream(call: Call, site: Site, vitals: Vitals, audits: Audits) -> Answer[Event[Beat]]:
    """How it goes, every two seconds, as server-sent events."""
    admin = (await operator(call, site)).admin()
    return Answer(_beats(site, vitals, audits, admin))


async def _beats(site: Site, vitals: Vitals, audits: Audits, admin: Actor) -> AsyncIterator[Event[Beat]]:
    for _ in range(MOST_SENT):
        state = await audits.state(admin)
        table = render("operator-jobs.html", jobs=await vitals.jobs(), now=site.clock.now_ms())
        yield Event(Beat(await vitals.now(), _progress(state.running), table, state.last.ended_at if state.last else 0))
        await asyncio.sleep(TICK_SECONDS)


@page.post("/operator/health/audit")
async def audit(call: Call, body: bytes, site: Site, audits: Audits, keyspace: Keyspace) -> Answer[str]:
    """Begin an audit. One that is under way already is shown instead."""
    who = await operator(call, site)
    said = "The audit has begun."
    try:
        await audits.start(who.admin())
    except Conflict as error:
        said = error.detail
    context = await _audit(audits, keyspace, who.admin())
    return site.done(call, who, body, "/app/operator/health", "operator-audit.html", said=said, **context)


@page.get("/operator/health/audit")
async def audited(call: Call, site: Site, audits: Audits, keyspace: Keyspace) -> Answer[str]:
    """What the last audit found, as the piece of the page that shows it."""
    who = await operator(call, site)
    return site.page(call, who, "operator-audit.html", **await _audit(audits, keyspace, who.admin()))


@page.post("/operator/demo")
async def demo(call: Call, body: bytes, site: Site) -> Answer[str]:
    """Turn the demo on or off."""
    who = await operator(call, site)
    on = forms.fields_of(body).get("on") == "1"
    await site.demo.switch(who.admin(), on)
    said = "The demo is on." if on else "The demo is off."
    return site.done(call, who, body, "/app/operator/health", "operator-demo.html", said=said, demo=on)


async def _audit(audits: Audits, keyspace: Keyspace, admin: Actor) -> dict[str, Any]:
    """What is known of audits. What they found in closed families is counted and not shown: it may name a token."""
    state = await audits.state(admin)
    return {"running": _progress(state.running), "last": state.last, "closed": keyspace.closed}


def _progress(report: Report | None) -> Progress | None:
    return None if report is None else Progress(report.keys, max(report.total, report.keys, 1), report.findings)
