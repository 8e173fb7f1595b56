"""Social's Lua library: one file per noun, in the order in which they use each other, on top of core's comment tree."""

from __future__ import annotations

from plaza.core import comment_tree
from plaza.core.comment_tree import MAX_EDITS
from plaza.core.functions import Constant, Library
from plaza.core.roles import ROLES
from plaza.social.hashtags import MAX_TAG_CHARACTERS, MAX_TAGS
from plaza.social.home_feed import DEPTH, MAX_FOLLOWED_READ, MAX_MERGED, MERGE_OVERLAP_MS
from plaza.social.keys import CATALOGUE, HOME_SECONDS
from plaza.social.model import (
    BOOKMARK_POINTS,
    COMMENT_POINTS,
    COPIED_FIELDS,
    HOUR_MS,
    LIKE_POINTS,
    MAX_COMPLETED,
    RANKED_MS,
)
from plaza.social.post_reader import MAX_CACHED_MEMBERS

_NOUNS = (
    "users",
    "relations",
    "hashtags",
    "post_projections",
    "posts",
    "comments",
    "bulk_import",
    "feeds",
    "renaming",
    "repair",
)

_CONSTANTS: dict[str, Constant] = {
    "IS_ROLE": dict.fromkeys(ROLES, True),
    "IS_COPIED_FIELD": dict.fromkeys(COPIED_FIELDS, True),
    "HOUR_MS": HOUR_MS,
    "RANKED_MS": RANKED_MS,
    "LIKE_POINTS": LIKE_POINTS,
    "COMMENT_POINTS": COMMENT_POINTS,
    "BOOKMARK_POINTS": BOOKMARK_POINTS,
    "MAX_COMPLETED": MAX_COMPLETED,
    "MAX_EDITS": MAX_EDITS,
    "MAX_TAGS": MAX_TAGS,
    "MAX_TAG_CHARACTERS": MAX_TAG_CHARACTERS,
    "MERGE_OVERLAP_MS": MERGE_OVERLAP_MS,
    "MAX_CACHED_MEMBERS": MAX_CACHED_MEMBERS,
    "MAX_MERGED": MAX_MERGED,
    "MAX_FOLLOWED_READ": MAX_FOLLOWED_READ,
    "HOME_DEPTH": DEPTH,
    "HOME_SECONDS": HOME_SECONDS,
}

LIBRARY = Library.read(
    "social", CATALOGUE, "plaza.social.lua", *_NOUNS, base=comment_tree.LIBRARY, constants=_CONSTANTS
)
