"""Media has no keys in Valkey: pictures are in SQL and in the object store."""

from __future__ import annotations

from plaza.core.keyspace import Catalogue

CATALOGUE = Catalogue("media", {}, {})
