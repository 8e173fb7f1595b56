"""Search has no keys: its index is in SQL."""

from __future__ import annotations

from plaza.core.keyspace import Catalogue

CATALOGUE = Catalogue("search", {}, {})
