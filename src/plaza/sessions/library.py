"""The Lua of sessions. A domain that keeps data per session builds its own library on it."""

from __future__ import annotations

from plaza.core.functions import Library
from plaza.shop.keys import CATALOGUE

LIBRARY = Library.read("sessions", CATALOGUE, "plaza.sessions.lua", "sessions")
