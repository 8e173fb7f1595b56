"""The Lua library of articles. Each file may use what the files before it define."""

from __future__ import annotations

from plaza.articles.keys import ADDITIONAL_ORDERS, BUILDER_MS, CATALOGUE, GROUP_SECONDS, LINK_SECONDS, RANKINGS
from plaza.articles.model import BEST_Z, HOT_EPOCH_SECONDS, HOT_SECONDS, MAX_GROUPS, VOTE_SECONDS
from plaza.core import comment_tree
from plaza.core.functions import Library
from plaza.core.number_parsing import MAX_TIME_MS

_FILES = ("source_data", "ranking", "votes", "groups", "comments", "articles", "group_rankings", "repair")

LIBRARY = Library.read(
    "articles",
    CATALOGUE,
    "plaza.articles.lua",
    *_FILES,
    base=comment_tree.LIBRARY,
    constants={
        "ORDERS": list(RANKINGS),
        "ADDITIONAL_ORDERS": list(ADDITIONAL_ORDERS),
        "VOTE_SECONDS": VOTE_SECONDS,
        "HOT_EPOCH_SECONDS": HOT_EPOCH_SECONDS,
        "HOT_SECONDS": HOT_SECONDS,
        "BEST_Z": BEST_Z,
        "MAX_TIME_SECONDS": MAX_TIME_MS / 1000,
        "LINK_SECONDS": LINK_SECONDS,
        "GROUP_SECONDS": GROUP_SECONDS,
        "BUILDER_MS": BUILDER_MS,
        "MAX_GROUPS": MAX_GROUPS,
    },
)
