"""Reports have no Lua, because they have no keys."""

from __future__ import annotations

from plaza.core.functions import Library
from plaza.reports.keys import CATALOGUE

LIBRARY = Library("reports", CATALOGUE, "")
