"""The composition root: settings → Valkey, functions, SQL → services. Only it and `http_application.py` know all parts.

`running` opens everything in order and closes it in reverse, also after an error. The server, the commands and the
tests use it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from plaza import worker
from plaza.accounts.security_log import SqlSecurityLog
from plaza.core import keys, paging, rate_limits, sql_migrations
from plaza.core.api_keys import ApiKeys
from plaza.core.auth import Auth
from plaza.core.clock import Clock
from plaza.core.clock_steps import ClockSteps, observe_latest
from plaza.core.domain import Core, Domain, Parts, build_domains
from plaza.core.domain_selection import domains_of_packages, installed_domains, require_personal_data, selected_domains
from plaza.core.encryption import FieldEncryption
from plaza.core.errors import OperatorError
from plaza.core.event_hub import EventHub
from plaza.core.event_routes import EventFeed, EventTypeNames
from plaza.core.event_trimming import EventTrimming
from plaza.core.events import EventData
from plaza.core.extras import require_extra
from plaza.core.functions import Functions
from plaza.core.health import System
from plaza.core.health_history import HealthHistory
from plaza.core.keyspace import Catalogue
from plaza.core.rate_limits import Limiter
from plaza.core.replication_wait import ReplicationWait
from plaza.core.revocations import Revocations, ended_sessions
from plaza.core.root_path import public_url
from plaza.core.security_log import AccountLog
from plaza.core.settings import Settings
from plaza.core.sql import Sql
from plaza.core.sql_events import SqlEventRelay
from plaza.core.sql_tracing import trace_statements
from plaza.core.telemetry import RequestLog, metrics_sampling
from plaza.core.topic_hub import TopicHub
from plaza.core.tracing import TRACING, Tracer
from plaza.core.valkey import Valkey
from plaza.core.wrong_type import WrongTypeReporter
from plaza.demo import keys as demo
from plaza.demo.lifecycle import Demo, DemoParts
from plaza.keyspace import audit
from plaza.keyspace.audit import Auditor, Audits, FailoverWatch
from plaza.keyspace.audit_keys import CATALOGUE as AUDIT_KEYS
from plaza.keyspace.browser import KeyBrowser
from plaza.keyspace.document_guard import document_guard
from plaza.keyspace.lifetimes import cut_lifetimes
from plaza.keyspace.proxy import execution
from plaza.keyspace.proxy.service import Proxy
from plaza.keyspace.reencryption import Reencryption
from plaza.own_domains import OWN_DOMAINS
from plaza.valkey_discovery import open_connection
from plaza.web import REQUIRED_DOMAINS
from plaza.worker import Worker

if TYPE_CHECKING:
    from plaza.core.http.app import App

T = TypeVar("T")

DOMAINS: tuple[Domain, ...]  # Plaza's own, imported when all are needed
# Those of no domain.
LIBRARIES = (rate_limits.LIBRARY, paging.LIBRARY, execution.LIBRARY, audit.LIBRARY, *worker.LIBRARIES)


if not TYPE_CHECKING:  # mypy would take every name for one of this module

    def __getattr__(name: str) -> Any:
        if name == "DOMAINS":
            return own_domains()
        raise AttributeError(name)


def own_domains(names: Sequence[str] = OWN_DOMAINS) -> tuple[Domain, ...]:
    """Return Plaza's own domains of these names, in the order in which they are built. Imports no others."""
    return tuple(import_module(f"plaza.{name}.domain").DOMAIN for name in OWN_DOMAINS if name in names)


@dataclass(frozen=True)
class Plaza:
    """All of Plaza, open and ready."""

    core: Core
    worker: Worker  # not running yet: one process of several runs it
    services: Mapping[type, Any]
    build_app: Callable[[], App]

    @cached_property
    def app(self) -> App:
        """The ASGI application. Built when it is first needed: commands and workers serve no requests."""
        return self.build_app()

    def get(self, kind: type[T]) -> T:
        """Return a service by its type. Raises `OperatorError` if its domain is off."""
        if kind not in self.services:
            raise OperatorError(f"{kind.__name__} does not exist here: its domain is off. See PLAZA_DOMAINS.")
        found: T = self.services[kind]
        return found


@asynccontextmanager
async def running(
    settings: Settings,
    domains: Sequence[Domain] | None = None,
    *,
    protects_documented: bool = False,
    restoring: bool = False,
) -> AsyncIterator[Plaza]:
    """Open Plaza on the Valkey that the settings name, which must be reachable.

    Without `domains`, those run that the settings name, or all that are installed. With `protects_documented`, no Lua
    of this process changes a documented key. Only with `restoring` it opens in the middle of a restore.
    """
    domains = configured_domains(settings) if domains is None else domains
    guard = document_guard(catalogues(domains)) if protects_documented else ""
    async with _opened(settings, domains, guard, restoring) as core, metrics_sampling():
        requests, draining = RequestLog(), asyncio.Event()
        parts = build_domains(core, domains)
        for domain, part in zip(domains, parts, strict=False):  # after them come the parts that are built last
            require_personal_data(domain, part)
        services = _services(core, domains, parts, draining)
        demo = Demo(core, partial(_demo_parts, core, services)) if runs_demo(domains) else None
        jobs = _worker(core, domains, parts, services, demo)
        if demo is not None:
            services[Demo] = demo
        replication = ReplicationWait(core.valkey, settings.wait_replicas) if settings.wait_replicas else None
        build_app = partial(_build_app, core, domains, services, jobs, requests, draining, replication)
        try:
            yield Plaza(core, jobs, services, build_app)
        finally:
            services[TopicHub].close()
            services[EventHub].close()
            await services[Audits].close()
            for part in parts:
                for end in part.on_close:
                    end()
            if replication is not None:
                replication.close()
            requests.flush()


def _build_app(*parts: Any) -> App:
    from plaza.http_application import build_app  # with the pages and their templates, which commands do not need

    return build_app(*parts)


def _services(
    core: Core, domains: Sequence[Domain], parts: Sequence[Parts], draining: asyncio.Event
) -> dict[type, Any]:
    """Return the services that handlers and commands can ask for, by type, without those of the pages."""
    services: dict[type, Any] = {type(service): service for part in parts for service in part.services}
    services[System] = System(
        core.functions, core.sql, draining, start_page="/app" if shows_pages(domains) else "/docs"
    )
    services[HealthHistory] = HealthHistory(core.valkey, core.clock)
    services[WrongTypeReporter] = WrongTypeReporter(core.valkey, catalogues(domains))
    encryption = FieldEncryption(core.settings.data_keys())
    logs = services.get(SqlSecurityLog), services.get(AccountLog)
    on_write = {pattern: emit for part in parts for pattern, emit in part.on_proxy_write.items()}
    services[Proxy] = Proxy(core.functions, core.limiter, catalogues(domains), encryption, *logs, on_write=on_write)
    encrypted = [fields for part in parts for fields in part.encrypted]
    services[Reencryption] = Reencryption(core.functions, catalogues(domains), encrypted)
    services[Audits] = Audits(_auditor(core, domains, parts))
    services[EventTrimming] = EventTrimming(
        core.functions, core.settings.events_days, core.settings.events_max, list(event_types(domains))
    )
    services |= _event_services(core, domains)
    services[TopicHub] = _topic_hub(core, parts, services[EventHub])
    services[KeyBrowser] = KeyBrowser(core.valkey, catalogues(domains))
    return services


def _event_services(core: Core, domains: Sequence[Domain]) -> dict[type, Any]:
    """Return what the route of events needs."""
    types, settings = event_types(domains), core.settings
    hub = EventHub(core.functions, list(types), core.clock, settings.events_days, settings.events_max)
    names = EventTypeNames(kind.type for kinds in types.values() for kind in kinds)
    return {EventHub: hub, EventFeed: EventFeed(hub, names, public_url(settings))}


def _topic_hub(core: Core, parts: Sequence[Parts], events: EventHub) -> TopicHub:
    sources = [source for part in parts for source in part.topic_sources]
    hidden = next((part.provided.hidden_authors for part in parts if part.provided.hidden_authors), None)
    return TopicHub(events, sources, hidden, core.auth, core.clock, limits=core.settings.rate_limits)


def _worker(
    core: Core, domains: Sequence[Domain], parts: Sequence[Parts], services: Mapping[type, Any], demo: Demo | None
) -> Worker:
    off = set(OWN_DOMAINS) - {domain.name for domain in domains}
    consumers = [consumer for part in parts for consumer in part.consumers if consumer.stream not in off]
    streams = {domain.name for domain in domains if domain.events} | {consumer.stream for consumer in consumers}
    timers = [timer for part in parts for timer in part.timers]
    timers += services[EventTrimming].timers(sorted(streams), consumers)
    timers.append(_clock_steps(core, parts, services[Audits].auditor).timer())
    timers.append(FailoverWatch(services[Audits], core.settings.data_dir).timer())
    loops = {name: loop for part in parts for name, loop in part.worker_loops.items()}
    if demo is not None:
        loops["demo"] = demo.turn
    return Worker(core.functions, timers, consumers, loops, explain=services[WrongTypeReporter].explain)


def _clock_steps(core: Core, parts: Sequence[Parts], auditor: Auditor) -> ClockSteps:
    handlers = [handler for part in parts for handler in part.on_clock_set_back]
    return ClockSteps(core.valkey, core.clock, [*handlers, lambda: cut_lifetimes(core.functions, auditor.families)])


@asynccontextmanager
async def _opened(settings: Settings, domains: Sequence[Domain], guard: str, restoring: bool) -> AsyncIterator[Core]:
    """Open what the domains are built on, in order; close it in reverse."""
    clock = Clock()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(tracing_to(settings))
        valkey = await stack.enter_async_context(open_connection(settings.valkey_url))
        if not restoring:
            await _refuse_half_restored(valkey)
        await observe_latest(valkey, clock)
        revocations = Revocations(valkey, clock=clock)
        api_keys = ApiKeys(valkey, clock)
        sessions = ended_sessions(valkey, clock)
        auth = Auth(settings, revocations, ended_sessions=sessions, api_keys=api_keys, clock=clock)
        libraries = [*LIBRARIES, *(domain.library for domain in domains)]
        functions = Functions(valkey, [replace(library, guard=guard) for library in libraries] if guard else libraries)
        await functions.load()
        stack.push_async_callback(functions.outbox.drain)
        await revocations.start()
        stack.push_async_callback(revocations.close)
        await sessions.start()
        stack.push_async_callback(sessions.close)
        await api_keys.start()
        stack.push_async_callback(api_keys.close)
        sql = await Sql.open(settings, *migrations_of(domains))
        stack.push_async_callback(sql.close)
        if TRACING.tracer is not None:
            trace_statements(sql.engines)
        relay = SqlEventRelay(functions, sql)
        relay.start()
        stack.push_async_callback(relay.close)
        limiter = Limiter(functions, on=settings.rate_limits)
        yield Core(settings, valkey, functions, sql, auth, limiter, clock)


async def _refuse_half_restored(valkey: Valkey) -> None:
    backup = await valkey.call("GET", keys.RESTORING())
    if backup is not None:
        raise OperatorError(
            f"The restore of backup {backup} has not ended. Wait for it; if it failed, repeat it with --replace."
        )


@asynccontextmanager
async def tracing_to(settings: Settings) -> AsyncIterator[None]:
    """Trace to the collector of the settings, if there is one; then send what is queued."""
    if not settings.otlp_endpoint:
        yield
        return
    require_extra("otel", "PLAZA_OTLP_ENDPOINT is set.")
    from plaza.core.otlp import OtlpSink  # 300 ms of CPU that a start without a collector saves

    sink = OtlpSink(settings.otlp_endpoint)
    TRACING.tracer = Tracer(sink, settings.otlp_sampling)
    try:
        yield
    finally:
        TRACING.tracer = None
        await sink.close()


def migrations_of(domains: Sequence[Domain]) -> tuple[list[Path], list[Path]]:
    """Return the folders of migrations of core and these domains, and those of the domains that are off."""
    own = [sql_migrations.CORE_FOLDER, *_folders(domains)]
    installed = [*sql_migrations.migration_folders(), *_folders(domains_of_packages())]
    return own, [folder for folder in installed if folder not in own]


def _folders(domains: Sequence[Domain]) -> list[Path]:
    return [domain.migrations for domain in domains if domain.migrations is not None]


def migration_folders(domains: Sequence[Domain]) -> list[Path]:
    """Return the folders of migrations of core, of these domains and of those that are off."""
    own, others = migrations_of(domains)
    return [*own, *others]


def _auditor(core: Core, domains: Sequence[Domain], parts: Sequence[Parts]) -> Auditor:
    """Build the audit, with the invariants of all domains."""
    inspectors = [inspector for part in parts for inspector in part.inspectors]
    rules = {domain.name: domain.invariants for domain in domains}
    return Auditor(core.functions, catalogues(domains), rules, inspectors, core.clock)


def _demo_parts(core: Core, services: Mapping[type, Any]) -> DemoParts:
    """Build what loads and simulates the demo, which uses the services of all domains."""
    from plaza.demo.parts import build_parts  # its sample texts and loaders, which only a running demo needs

    return build_parts(core, services)


def configured_domains(settings: Settings, names: Sequence[str] = ()) -> list[Domain]:
    """Return the domains that the settings name, or all that are installed; of these, only Plaza's own of some names.

    With names, others are not imported.
    """
    if names and not settings.domains:
        return list(own_domains(names))
    domains = selected_domains(installed_domains(own_domains()), settings.domains)
    return [domain for domain in domains if not names or domain.name in names]


def catalogues(domains: Sequence[Domain] | None = None) -> list[Catalogue]:
    """Return the keys of Plaza, by domain."""
    domains = own_domains() if domains is None else domains
    above = (demo.CATALOGUE,) if runs_demo(domains) else ()
    return [keys.CATALOGUE, AUDIT_KEYS, *(domain.catalogue for domain in domains), *above]


def event_types(domains: Sequence[Domain] | None = None) -> dict[str, Sequence[type[EventData]]]:
    """Return the types of events, by the domain that emits them."""
    domains = own_domains() if domains is None else domains
    return {domain.name: domain.events for domain in domains if domain.events}


def shows_pages(domains: Sequence[Domain]) -> bool:
    """Whether the domains are there that every page uses."""
    return {domain.name for domain in domains} >= REQUIRED_DOMAINS


def runs_demo(domains: Sequence[Domain]) -> bool:
    """The demo uses all domains."""
    return {domain.name for domain in domains} >= set(OWN_DOMAINS)
