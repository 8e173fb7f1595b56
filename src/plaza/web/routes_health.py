"""For operators: how Plaza is doing, which jobs ran, what the last audit found; buttons for an audit and the demo."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from msgspec import Struct

from plaza.core.errors import Conflict
from plaza.core.http.access import ADMIN
from plaza.core.http.request import Request
from plaza.core.http.responses import EVENTS, Event, Response
from plaza.keyspace.audit import AuditReport, Audits
from plaza.keyspace.browser import KeyBrowser
from plaza.web import forms
from plaza.web.health import Figures, Vitals
from plaza.web.rendering import render
from plaza.web.routes_operator import SECTION, tabs
from plaza.web.routing import PageRoutes
from plaza.web.site import Site

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


@page.get("/operator/health", access=ADMIN)
async def health(request: Request, site: Site, vitals: Vitals, audits: Audits, keyspace: KeyBrowser) -> Response[str]:
    """Throughput, latency, Valkey, jobs, audits and the demo."""
    who = await site.visitors.of(request)
    return site.page(
        request,
        who,
        "operator-health.html",
        section=SECTION,
        **tabs("Health"),
        figures=await vitals.now(),
        jobs=await vitals.jobs(),
        demo=await site.demo.is_on(),
        **await _audit(audits, keyspace),
    )


@page.get("/operator/health/stream", access=ADMIN, media_type=EVENTS)
async def stream(site: Site, vitals: Vitals, audits: Audits) -> Response[Event[Beat]]:
    """How it goes, every two seconds, as server-sent events."""
    return Response(_beats(site, vitals, audits))


async def _beats(site: Site, vitals: Vitals, audits: Audits) -> AsyncIterator[Event[Beat]]:
    for _ in range(MOST_SENT):
        state = await audits.state()
        table = render("operator-jobs.html", jobs=await vitals.jobs(), now=site.clock.now_ms())
        yield Event(Beat(await vitals.now(), _progress(state.running), table, state.last.ended_at if state.last else 0))
        await asyncio.sleep(TICK_SECONDS)


@page.post("/operator/health/audit", access=ADMIN)
async def audit(request: Request, body: bytes, site: Site, audits: Audits, keyspace: KeyBrowser) -> Response[str]:
    """Begin an audit. One that is under way already is shown instead."""
    who = await site.visitors.of(request)
    said = "The audit has begun."
    try:
        await audits.start()
    except Conflict as error:
        said = error.detail
    context = await _audit(audits, keyspace)
    return site.done(request, who, body, "/app/operator/health", "operator-audit.html", said=said, **context)


@page.get("/operator/health/audit", access=ADMIN)
async def audited(request: Request, site: Site, audits: Audits, keyspace: KeyBrowser) -> Response[str]:
    """What the last audit found, as the piece of the page that shows it."""
    who = await site.visitors.of(request)
    return site.page(request, who, "operator-audit.html", **await _audit(audits, keyspace))


@page.post("/operator/demo", access=ADMIN)
async def demo(request: Request, body: bytes, site: Site) -> Response[str]:
    """Turn the demo on or off."""
    who = await site.visitors.of(request)
    on = forms.fields_of(body).get("on") == "1"
    await site.demo.switch(on)
    said = "The demo is on." if on else "The demo is off."
    return site.done(request, who, body, "/app/operator/health", "operator-demo.html", said=said, demo=on)


async def _audit(audits: Audits, keyspace: KeyBrowser) -> dict[str, Any]:
    """What is known of audits. What they found in closed families is counted and not shown: it may name a token."""
    state = await audits.state()
    return {"running": _progress(state.running), "last": state.last, "closed": keyspace.closed_patterns}


def _progress(report: AuditReport | None) -> Progress | None:
    return None if report is None else Progress(report.keys, max(report.total, report.keys, 1), report.findings)
