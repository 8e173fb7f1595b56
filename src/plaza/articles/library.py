"""The Lua library of articles: one file per noun, in the order in which they build on each other."""

from __future__ import annotations

from plaza.articles.keys import CATALOGUE
from plaza.core.functions import Library

_NOUNS = ("source_data", "ranking", "votes", "groups", "articles", "group_rankings", "repair")

LIBRARY = Library.read("articles", CATALOGUE, "plaza.articles.lua", *_NOUNS)
