"""The types of search requests and responses."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from plaza.core.paging import Page, Pagination
from plaza.core.search_source import MAX_TAG_POSTS, SearchHit
from plaza.search.query import MAX_QUERY_CHARACTERS

Kind = Literal["users", "posts", "articles", "challenges", "items"]
KINDS: Final[tuple[Kind, ...]] = ("users", "posts", "articles", "challenges", "items")

QueryText = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MAX_QUERY_CHARACTERS,
        examples=["garden"],
        description='Words, beginnings of words, `"phrases"`, `-not`, `#tag`, `from:name`.',
    ),
]


class SearchQuery(Page, frozen=True, kw_only=True):
    """The query parameters of a search."""

    q: QueryText
    type: Kind | None = None
    explain: Annotated[bool, Meta(description="Say why results rank as they do (admins).")] = False


class SearchResults(msgspec.Struct, omit_defaults=True):
    """Results by kind, best first. Without `type`, the best five of each kind and no pagination."""

    users: list[SearchHit] | UnsetType = UNSET
    posts: list[SearchHit] | UnsetType = UNSET
    articles: list[SearchHit] | UnsetType = UNSET
    challenges: list[SearchHit] | UnsetType = UNSET
    items: list[SearchHit] | UnsetType = UNSET
    pagination: Pagination | UnsetType = UNSET
    did_you_mean: str | None = None  # the query with a name or a tag corrected, if it found nothing


class SuggestedTag(msgspec.Struct):
    id: str
    posts: Annotated[int, Meta(description=f"Posts with this tag that you can see, counted up to {MAX_TAG_POSTS}.")]


class Suggestions(msgspec.Struct):
    """Users and tags that begin with what was typed."""

    users: list[SearchHit]
    tags: list[SuggestedTag]
