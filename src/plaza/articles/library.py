"""The Lua library of articles: one file per noun, in the order in which they build on each other."""

from __future__ import annotations

from plaza.articles.keys import CATALOGUE
from plaza.core.functions import Library

_NOUNS = ("facts", "ranking", "votes", "groups", "articles", "lists", "mending")

LIBRARY = Library.read("articles", CATALOGUE, "plaza.articles.lua", *_NOUNS)
