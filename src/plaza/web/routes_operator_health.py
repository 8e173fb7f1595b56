"""The operators' health page: throughput, latency, Valkey, jobs, audits and the demo switch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final, get_args

from msgspec import Struct

from plaza.core.errors import Conflict
from plaza.core.event_trimming import EventTrimming
from plaza.core.health_history import HistorySpan
from plaza.core.http.access import ADMIN
from plaza.core.http.request import Request
from plaza.core.http.responses import EVENTS, Response, ServerSentEvent
from plaza.keyspace.audit import AuditReport, Audits, AuditState
from plaza.keyspace.browser import KeyBrowser
from plaza.web import forms
from plaza.web.health_charts import chart_context
from plaza.web.health_figures import HealthFigures, HealthMonitor
from plaza.web.operator_navigation import confirmation, operator_page, operator_views
from plaza.web.page_responses import PageResponses
from plaza.web.page_routes import PageRoutes
from plaza.web.partial_reads import PartialReads
from plaza.web.rendering import render, tabs
from plaza.web.system_state import SystemStateReader
from plaza.webhooks.endpoints import Webhooks

page = PageRoutes()

UPDATE_SECONDS: Final = 2.0
# Five minutes. Then the browser reconnects, which checks the session again.
MAX_UPDATES: Final = 150
SPANS: Final = (("Last hour", "/app/operator/health"), ("Last week", "/app/operator/health?span=week"))


class AuditProgress(Struct):
    """The progress of an audit: `keys` of `total` scanned."""

    mode: str
    keys: int
    total: int
    findings: int


class HealthUpdate(Struct):
    """A message of the health page's stream."""

    figures: HealthFigures
    audit: AuditProgress | None
    jobs: str  # the table as HTML
    charts: str  # as HTML; empty while there is no new bucket
    audited: int  # when the last audit ended


@page.get("/operator", access=ADMIN)
async def start() -> Response[str]:
    """Redirect to the first operator page."""
    return Response(status=303, headers=[("location", operator_views()[0][1])])


@page.get("/operator/health", access=ADMIN)
async def health(
    request: Request,
    site: PageResponses,
    monitor: HealthMonitor,
    audits: Audits,
    keyspace: KeyBrowser,
    trimming: EventTrimming,
    webhooks: Webhooks,
    system: SystemStateReader,
    span: HistorySpan = "hour",
) -> Response[str]:
    """Show throughput, latency, Valkey, jobs, audits and the demo; of a part of Valkey if the rest does not respond."""
    visitor = await site.visitors.from_request(request)
    reads = PartialReads()
    endpoints = await reads.read(webhooks.list_all(), [])
    return operator_page(
        request,
        site,
        visitor,
        "operator-health.html",
        "Health",
        figures=await monitor.figures(),
        charts=await chart_context(monitor.history, span),
        spans=tabs("Span", SPANS, dict(zip(get_args(HistorySpan), SPANS, strict=True))[span][0]),
        state=await system.read(),
        jobs=await reads.read(monitor.jobs(), []),
        groups_behind=await reads.read(trimming.all_groups_behind(), []),
        disabled_webhooks=[webhook for webhook in endpoints if not webhook.enabled],
        demo=await reads.read(site.demo.is_on(), None),
        **await _audit_context(audits, keyspace, reads),
        missing=reads.missing,
    )


@page.get("/operator/health/stream", access=ADMIN, media_type=EVENTS)
async def stream(
    request: Request, site: PageResponses, monitor: HealthMonitor, audits: Audits, span: HistorySpan = "hour"
) -> Response[ServerSentEvent[HealthUpdate]]:
    """Stream the health figures every two seconds."""
    visitor = await site.visitors.from_request(request)
    return Response(site.visitors.while_admin(visitor, _updates(site, monitor, audits, span)))


async def _updates(
    site: PageResponses, monitor: HealthMonitor, audits: Audits, span: HistorySpan
) -> AsyncGenerator[ServerSentEvent[HealthUpdate], None]:
    shown, reads = 0, PartialReads()
    for _ in range(MAX_UPDATES):
        charts = await chart_context(monitor.history, span)
        drawn = render("operator-health-charts.html", charts=charts) if charts["updated"] > shown else ""
        shown = charts["updated"]
        state = await reads.read(audits.state(), AuditState(None, None))
        jobs = render("operator-jobs.html", jobs=await reads.read(monitor.jobs(), []), now=site.clock.now_ms())
        audited = state.last.ended_at if state.last else 0
        yield ServerSentEvent(HealthUpdate(await monitor.figures(), _progress(state.running), jobs, drawn, audited))
        await asyncio.sleep(UPDATE_SECONDS)


@page.post("/operator/health/audit", access=ADMIN)
async def start_audit(
    request: Request, body: bytes, site: PageResponses, audits: Audits, keyspace: KeyBrowser
) -> Response[str]:
    """Start an audit, or show the one that is running."""
    visitor = await site.visitors.from_request(request)
    message = "Audit started."
    try:
        await audits.start()
    except Conflict as error:
        message = error.detail
    context = await _audit_context(audits, keyspace)
    path = "/app/operator/health"
    return site.form_response(request, visitor, body, path, "operator-audit.html", message=message, **context)


@page.get("/operator/health/audit", access=ADMIN)
async def audit(request: Request, site: PageResponses, audits: Audits, keyspace: KeyBrowser) -> Response[str]:
    """Show the last audit, as a fragment of the health page."""
    visitor = await site.visitors.from_request(request)
    context = await _audit_context(audits, keyspace)
    return site.page(request, visitor, "operator-audit.html", **context)


@page.get("/operator/demo", access=ADMIN)
async def confirm_end_of_demo(request: Request, site: PageResponses) -> Response[str]:
    """Show what turning off the demo does, before it is done."""
    return await confirmation(
        request,
        site,
        "Health",
        title="Turn off the demo?",
        effects=[
            "The simulation stops. All sessions of demo users end now, also yours if you are one of them.",
            "What they wrote stays. An admin can turn the demo on again here, or with plaza demo --switch on.",
        ],
        fields={"on": "0"},
        button="Turn off the demo",
        back="/app/operator/health",
    )


@page.post("/operator/demo", access=ADMIN, logged_fields=("on",))
async def switch_demo(request: Request, body: bytes, site: PageResponses) -> Response[str]:
    """Turn the demo on or off."""
    visitor = await site.visitors.from_request(request)
    on = forms.is_on(body)
    await site.demo.switch(on)
    message = "Demo turned on." if on else "Demo turned off."
    path = "/app/operator/health"
    return site.form_response(request, visitor, body, path, "operator-demo-switch.html", message=message, demo=on)


async def _audit_context(audits: Audits, keyspace: KeyBrowser, reads: PartialReads | None = None) -> dict[str, Any]:
    """The state of audits. Findings in closed families are only counted: they may contain a token."""
    state = await (reads or PartialReads()).read(audits.state(), AuditState(None, None))
    return {"running": _progress(state.running), "last": state.last, "closed": keyspace.closed_patterns}


def _progress(report: AuditReport | None) -> AuditProgress | None:
    if report is None:
        return None
    return AuditProgress(report.mode, report.keys, max(report.total, report.keys, 1), report.findings)
