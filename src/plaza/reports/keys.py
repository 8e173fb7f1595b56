"""Reports have no keys in Valkey: they are in SQL, with their events in the same transaction."""

from __future__ import annotations

from plaza.core.keyspace import Catalogue

CATALOGUE = Catalogue("reports", {}, {})
