"""How a domain plugs in: one declaration, from which `app.py` takes everything the domain has.

A domain is data here, and its services are made by one function, so that tests can run it alone and the composition
root stays a list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from plaza.core.auth import Auth
from plaza.core.clock import Clock
from plaza.core.functions import Functions
from plaza.core.keys import Catalogue
from plaza.core.routes import Routes
from plaza.core.settings import Settings
from plaza.core.sql import Sql
from plaza.core.wire import Valkey


@dataclass(frozen=True, slots=True)
class Core:
    """What every domain stands on, open and ready."""

    settings: Settings
    valkey: Valkey
    functions: Functions
    sql: Sql
    auth: Auth
    clock: Clock


@dataclass(frozen=True, slots=True)
class Built:
    """A domain at work: its services, found by their type in the handlers' signatures."""

    services: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Domain:
    """A domain's declaration: `DOMAIN = Domain("articles", CATALOGUE, LUA, [route], build)`.

    Its tables need no mention: a folder `migrations/versions` beside it is found.
    """

    name: str
    catalogue: Catalogue
    lua: str
    routes: Iterable[Routes]
    build: Callable[[Core], Built]
