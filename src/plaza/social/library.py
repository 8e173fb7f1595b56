"""The Lua library of social: one file per noun, in the order in which they build on each other, on top of paging's."""

from __future__ import annotations

from plaza.core import paging
from plaza.core.functions import Library
from plaza.social.keys import CATALOGUE

_NOUNS = ("users", "post_projections", "posts", "bulk_import", "feeds", "renaming", "repair")

LIBRARY = Library.read("social", CATALOGUE, "plaza.social.lua", *_NOUNS, base=paging.LIBRARY)
