"""The composition root: settings → Valkey, SQL → services → routes. The only place that knows all parts.

`running` opens everything in order and closes it in reverse, whatever happens in between. The commands use it, and so
do tests: there is no other way to put Plaza together.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from plaza.core import catalogue, system
from plaza.core.auth import Auth
from plaza.core.clock import Clock
from plaza.core.domain import Core, Domain
from plaza.core.http import App, make_app
from plaza.core.keys import Catalogue, use_layout
from plaza.core.server import EmbeddedValkey, running_url
from plaza.core.settings import Settings
from plaza.core.sql import Sql
from plaza.core.system import System
from plaza.core.wire import Valkey, connect

DOMAINS: tuple[Domain, ...] = ()


@dataclass(frozen=True, slots=True)
class Plaza:
    """Everything, open and ready."""

    core: Core
    app: App


@asynccontextmanager
async def running(settings: Settings, domains: Sequence[Domain] = DOMAINS) -> AsyncIterator[Plaza]:
    """Plaza on the Valkey that the settings name, which must be there."""
    async with opened(settings) as core:
        state = System(core.valkey, core.sql)
        services: list[object] = [state]
        for domain in domains:
            services += domain.build(core).services
        app = make_app(
            [system.route, *(routes for domain in domains for routes in domain.routes)],
            {type(service): service for service in services},
            auth=core.auth,
            settings=settings,
        )
        state.draining = app.draining
        yield Plaza(core, app)


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Core]:
    """The core alone, without domains."""
    clock = Clock()
    auth = Auth(settings, clock=clock)  # first: a key file that cannot be read is found before anything is opened
    valkey = await connect(settings.valkey_url)
    try:
        use_layout(valkey.layout)
        sql = await Sql.open(settings)
        try:
            yield Core(settings, valkey, sql, auth, clock)
        finally:
            await sql.close()
    finally:
        await valkey.close()


@asynccontextmanager
async def reached(settings: Settings) -> AsyncIterator[Valkey]:
    """The Valkey of a command: the configured one, that of a server running here, or one started meanwhile."""
    url = settings.valkey_url or await running_url(settings.data_dir)
    if url is None:
        async with EmbeddedValkey(settings.data_dir, settings.fsync) as own, _connected(own.url) as valkey:
            yield valkey
    else:
        async with _connected(url) as valkey:
            yield valkey


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[Valkey]:
    valkey = await connect(url)
    try:
        use_layout(valkey.layout)
        yield valkey
    finally:
        await valkey.close()


def catalogues(domains: Sequence[Domain] = DOMAINS) -> list[Catalogue]:
    """Every key of Plaza, by domain."""
    return [catalogue.CATALOGUE, *(domain.catalogue for domain in domains)]
