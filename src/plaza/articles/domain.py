"""How articles plug in."""

from __future__ import annotations

from importlib.resources import files

from plaza.articles.keys import CATALOGUE
from plaza.core.functions import Library

LIBRARY = Library("articles", CATALOGUE, files("plaza.articles").joinpath("functions.lua").read_text())
