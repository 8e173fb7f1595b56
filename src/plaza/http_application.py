"""Builds the HTTP application: the routes of the domains and the pages, bound to their services."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from plaza.accounts.security_log import SqlSecurityLog
from plaza.app import event_types, own_domains, runs_demo, shows_pages
from plaza.core import event_routes, health
from plaza.core.admin_mfa import AdminMfa
from plaza.core.domain import Core, Domain
from plaza.core.http import meta_routes
from plaza.core.http.action_summaries import ActionSummaries
from plaza.core.http.app import App, make_app
from plaza.core.http.app_options import AppOptions
from plaza.core.http.routes import Routes
from plaza.core.idempotency import Idempotency
from plaza.core.replication_wait import ReplicationWait
from plaza.core.telemetry import RequestLog
from plaza.core.wrong_type import WrongTypeReporter
from plaza.demo.lifecycle import Demo
from plaza.keyspace.proxy import routes as proxy
from plaza.live.viewers import ViewerAuthenticator
from plaza.own_domains import OWN_DOMAINS
from plaza.social import routes_feed_streams
from plaza.web import page_registry
from plaza.worker import Worker


def build_app(
    core: Core,
    domains: Sequence[Domain],
    services: Mapping[type, Any],
    jobs: Worker,
    requests: RequestLog,
    draining: asyncio.Event,
    replication: ReplicationWait | None,
) -> App:
    """Build the ASGI application of these domains, with the pages if the domains are there that every page uses."""
    page_options: dict[str, Any] = {}
    routes = routes_of(domains)
    services = {**services, ActionSummaries: ActionSummaries(routes)}
    if shows_pages(domains):
        demo: Demo | None = services.get(Demo)
        job_names = [*jobs.timers, *(demo.timers if demo is not None else ())]
        pages = page_registry.services(core, services, demo, job_names, [domain.name for domain in domains])
        services = {**services, **{type(service): service for service in pages}}
        page_options = page_registry.app_options(services)
    options = AppOptions(
        limiter=core.limiter,
        idempotency=Idempotency(core.valkey, core.clock),
        observer=requests,
        viewer_auth=services[ViewerAuthenticator].actor if ViewerAuthenticator in services else None,
        admin_mfa=services.get(AdminMfa, AdminMfa()),
        explain_error=services[WrongTypeReporter].explain,
        draining=draining,
        security_log=services.get(SqlSecurityLog),
        replication=replication,
        event_types=event_types(domains),
        skip_unavailable=not runs_demo(domains),
        bind_late={domain.name for domain in domains} <= set(OWN_DOMAINS),  # Plaza's own routes have tests
        **page_options,
    )
    return make_app(routes, services, auth=core.auth, settings=core.settings, options=options)


def routes_of(domains: Sequence[Domain]) -> list[Routes]:
    """Return all routes except those of `/docs`, `/openapi.json` and `/metrics`, which `make_app` adds."""
    own = [health.route, event_routes.route, proxy.route, *(routes for domain in domains for routes in domain.routes)]
    if any(domain.name == "social" for domain in domains):
        own.append(routes_feed_streams.route)
    if not shows_pages(domains):
        return own
    return [*own, *page_registry.routes([domain.name for domain in domains])]


def route_groups(domains: Sequence[Domain] | None = None) -> list[Routes]:
    """Return all routes."""
    return [*routes_of(own_domains() if domains is None else domains), meta_routes.route]
