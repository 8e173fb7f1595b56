"""A corruption: writes of another client, and the finding that the audit must report."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from tests.keyspace.audit.sample_community import SampleCommunity

MISSING_ID = "00000000-0000-4000-8000-000000000000"
TOKEN = "EB9382CA-0376-4558-B271-EA230BDB7EAF"

Corrupt = Callable[[Any, SampleCommunity], Awaitable[Any]]


@dataclass(frozen=True)
class Corruption:
    """One corruption. `finding` is the key family and the invariant that the report must name.

    `kept`: a repair leaves it, because another service may have written it.
    """

    name: str
    finding: tuple[str, str]
    corrupt: Corrupt
    kept: bool


class CorruptionList(list[Corruption]):
    """Corruptions, registered by the `found_as` decorator."""

    def found_as(self, family: str, rule: str, *, kept: bool = False) -> Callable[[Corrupt], Corrupt]:
        def register(corrupt: Corrupt) -> Corrupt:
            self.append(Corruption(corrupt.__name__, (family, rule), corrupt, kept))
            return corrupt

        return register
