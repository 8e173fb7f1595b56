"""How a domain plugs in: one declaration, from which `app.py` takes everything the domain has.

    DOMAIN = Domain(LIBRARY, [routes.route], build)

A domain is data here, and its services are made by one function, so that tests can run it alone and the composition
root stays a list.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from plaza.core.auth import Auth
from plaza.core.clock import Clock
from plaza.core.events import Consumer
from plaza.core.functions import Functions, Library
from plaza.core.http.routes import Routes
from plaza.core.invariants import Inspector, Invariants
from plaza.core.keyspace import Catalogue
from plaza.core.rate_limits import Limiter
from plaza.core.settings import Settings
from plaza.core.sql import Sql
from plaza.core.timers import Timer
from plaza.core.valkey import Valkey


@dataclass(frozen=True, slots=True)
class Core:
    """What every domain stands on, open and ready."""

    settings: Settings
    valkey: Valkey
    functions: Functions
    sql: Sql
    auth: Auth
    limiter: Limiter
    clock: Clock


class PersonalData(Protocol):
    """What a domain does for people who ask what is held about them, who take another name, or who leave."""

    async def export(self, username: str) -> dict[str, Any]:
        """Everything held about a person."""

    async def forget(self, username: str) -> None:
        """Remove a person's every trace; their tokens are void. Stopped half-way, it is called again."""

    async def rename(self, old: str, new: str) -> None:
        """Give a person's every trace to another name; their tokens are void. Stopped half-way, it is called again."""


@dataclass(frozen=True, slots=True)
class Parts:
    """A domain at work. Handlers get its services by naming their types; a worker runs its timers and consumers."""

    services: Sequence[object]
    timers: Sequence[Timer] = ()
    consumers: Sequence[Consumer] = ()
    # What every worker does again and again, sharing the work by itself: each returns the seconds until its next turn.
    turns: Mapping[str, Callable[[], Awaitable[float]]] = field(default_factory=dict)
    personal_data: PersonalData | None = None
    inspectors: Sequence[Inspector] = ()  # what the audit cannot check by rules
    # What to end before the connections close that it uses.
    ends: Sequence[Callable[[], None]] = ()


@dataclass(frozen=True, slots=True)
class Domain:
    """A domain's declaration. Its tables need no mention: a folder `migrations/versions` beside it is found."""

    library: Library  # its name, its catalogue of keys and its Lua
    routes: Sequence[Routes]
    build: Callable[[Core], Parts]
    rules: Invariants = field(default_factory=Invariants)  # what is always true, beyond what the catalogue says

    @property
    def name(self) -> str:
        return self.library.name

    @property
    def catalogue(self) -> Catalogue:
        return self.library.catalogue
