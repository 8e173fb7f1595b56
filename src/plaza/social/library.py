"""The Lua library of social: one file per noun, in the order in which they build on each other."""

from __future__ import annotations

from importlib.resources import files

from plaza.core import paging
from plaza.core.functions import Library
from plaza.social.keys import CATALOGUE

_LUA = files("plaza.social").joinpath("lua")
_NOUNS = ("users", "standing", "posts", "bringing", "feeds", "names", "mending")

LIBRARY = Library(
    "social", CATALOGUE, "\n".join([paging.LIBRARY.lua, *(_LUA.joinpath(f"{noun}.lua").read_text() for noun in _NOUNS)])
)
