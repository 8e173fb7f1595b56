"""A corruption: what another writer does with a plain client, and what the audit calls it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from tests.keyspace.audit.sample_community import Town

NOBODY = "00000000-0000-4000-8000-000000000000"
TOKEN = "EB9382CA-0376-4558-B271-EA230BDB7EAF"

How = Callable[[Any, Town], Awaitable[Any]]


@dataclass(frozen=True)
class Break:
    """One corruption. `finding` is a family and a rule that the report must name."""

    name: str
    finding: tuple[str, str]
    how: How


class Breaks(list[Break]):
    """Corruptions, as they are written down."""

    def found_as(self, family: str, rule: str) -> Callable[[How], How]:
        def note(how: How) -> How:
            self.append(Break(how.__name__, (family, rule), how))
            return how

        return note
