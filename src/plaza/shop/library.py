"""The shop's Lua, one file per noun, as the one library that Valkey gets."""

from __future__ import annotations

from importlib.resources import files

from plaza.core.functions import Library
from plaza.shop.keys import CATALOGUE

# Later files use what earlier ones define.
_FILES = ("rows", "sessions", "carts", "pages", "mending")
_LUA = files("plaza.shop").joinpath("lua")

LIBRARY = Library("shop", CATALOGUE, "\n".join(_LUA.joinpath(f"{name}.lua").read_text() for name in _FILES))
