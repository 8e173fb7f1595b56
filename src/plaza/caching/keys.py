"""The keys of the row cache and the page cache.

An item owns the cached copy of its database row, and a page its cached copy. `delay:`, `schedule:` and `viewed:`
have no owner. The prefix `shop:` is part of the published names, so it stays.
"""

from __future__ import annotations

import re
from typing import Final

from plaza.core.keyspace import Catalogue, Formula, HashField, Key, KeyAccess

# The document sets no lifetime, so other services may choose any.
ANY_SECONDS: Final = 315_360_000
# Plaza uses 32 hexadecimal digits; other services may use any hash.
PAGE: Final = r"[^\s{}]{1,256}"
# Any id, percent-encoded.
ITEM: Final = "[A-Za-z0-9_.~%-]{1,200}"
TAG: Final = "[A-Za-z0-9_.-]{1,64}"

# The owner part of `shop:halved:<popular>`: on a cluster `shop:halved:{viewed:}` shares a slot with `viewed:`.
POPULAR: Final = "viewed:"

CACHED_ROW = Key(
    "inv:<item>",
    "string",
    "The cached database row of an item, as JSON.",
    contains="`qty`, `name`, `description`, `price`, `id`, `version`",
    owner="item",
    element_regex=r"\{.*\}",
    lifetime="while it is scheduled; else a few seconds; rows of other services as long as they say",
    ttl_seconds=ANY_SECONDS,
    ttl_optional=True,
    read=KeyAccess.PUBLIC,
    document="inv:273",
)
ROW_STATE = Key(
    "shop:row:<item>",
    "hash",
    "The state of a cached row.",
    owner="item",
    fields=(
        HashField("at", "when it was copied, Unix milliseconds", KeyAccess.ADMIN),
        HashField("until", "until when it is fresh, Unix milliseconds", KeyAccess.ADMIN),
        HashField("version", "the version of the row that was copied", KeyAccess.ADMIN),
        HashField("delay", "seconds between two copies, if it is scheduled", KeyAccess.ADMIN),
        HashField("due", "when it was scheduled, Unix milliseconds", KeyAccess.ADMIN),
        HashField("old", "the last row, served after `inv:<item>` has expired", KeyAccess.ADMIN),
        HashField("none", "until when the row is known not to exist, Unix milliseconds", KeyAccess.ADMIN),
        HashField("busy", "which reader loads it from the database, and until when", KeyAccess.ADMIN),
        HashField("removed", "when it left the cache, Unix milliseconds", KeyAccess.ADMIN),
    ),
    invariants=(Formula("with a `delay`, the item is in `delay:`"),),
    repair="row <item>",
    lifetime="while it is scheduled; else an hour",
    ttl_seconds=3600,
    ttl_optional=True,
    read=KeyAccess.ADMIN,
)
ROW_DELAYS = Key(
    "delay:",
    "zset",
    "How often each scheduled row is copied. Zero or less removes the row from the cache.",
    contains="item id",
    score="seconds between two copies",
    element_regex="<item>",
    invariants=(Formula("each is in `schedule:` too"),),
    repair="row <item>",
    document="delay:",
    read=KeyAccess.ADMIN,
)
ROW_SCHEDULE = Key(
    "schedule:",
    "zset",
    "When each scheduled row is copied next.",
    contains="item id",
    score="Unix seconds",
    element_regex="<item>",
    document="schedule:",
    read=KeyAccess.ADMIN,
)
CACHED_PAGE = Key(
    "cache:<page>",
    "string",
    "A cached page, as it is sent.",
    contains="HTML",
    owner="page",
    lifetime="300 seconds; pages of other services as long as they say",
    ttl_seconds=ANY_SECONDS,
    ttl_optional=True,
    document="cache:236712hhl3213yu21_hash",
    read=KeyAccess.ADMIN,
)
PAGE_STATE = Key(
    "shop:page:<page>",
    "hash",
    "The state of a cached page, with a copy that is served while it is renewed.",
    owner="page",
    fields=(
        HashField("head", "its status, headers and entity tag, as JSON", KeyAccess.ADMIN),
        HashField("old", "the page", KeyAccess.ADMIN),
        HashField("began", "when the current or last computation began, Unix milliseconds", KeyAccess.ADMIN),
        HashField("from", "when the computation of the stored page began", KeyAccess.ADMIN),
        HashField("made", "when it was stored", KeyAccess.ADMIN),
        HashField("until", "until when it is fresh", KeyAccess.ADMIN),
        HashField("gone", "until when it may be served while it is renewed", KeyAccess.ADMIN),
        HashField("cost", "milliseconds that the computation took", KeyAccess.ADMIN),
        HashField("busy", "which request computes it", KeyAccess.ADMIN),
        HashField("lease", "until when that request has the exclusive right to", KeyAccess.ADMIN),
        HashField("void", "set if the page was purged during the computation", KeyAccess.ADMIN),
        HashField(
            "pass", "until when no request waits for the page: it is not cacheable, or a stream", KeyAccess.ADMIN
        ),
    ),
    lifetime="ten minutes",
    ttl_seconds=86_400,
    read=KeyAccess.ADMIN,
)
PAGE_TAG = Key(
    "shop:tag:<tag>",
    "zset",
    "The cached pages with a tag; purging the tag removes them.",
    contains="hash of a page; `purged` for the last purge",
    score="until when the page may be served, Unix milliseconds; of `purged`, the time of the purge",
    element_regex="<page>|purged",
    owner="tag",
    lifetime="two hours after the last page",
    ttl_seconds=172_800,
    read=KeyAccess.ADMIN,
)
ITEM_VIEWS = Key(
    "viewed:",
    "zset",
    "How often items are viewed: one down from 0 per view, halved and cut to 20,000 every five minutes.",
    contains="item id",
    score="minus the number of views, older views count less",
    element_regex="<item>",
    invariants=(Formula("no score is above 0"),),
    repair="views <item>",
    read=KeyAccess.PUBLIC,
    document="viewed:",
)
VIEWS_HALVED = Key(
    "shop:halved:<popular>",
    "string",
    "The five-minute interval in which `viewed:` was halved last, so that each interval halves it once.",
    contains="Unix seconds divided by 300",
    element_regex="<count>",
    owner="popular",
    read=KeyAccess.ADMIN,
)

CATALOGUE = Catalogue.from_module("caching", globals(), {"item": ITEM, "page": PAGE, "tag": TAG, "popular": POPULAR})


# A prefix of all keys, for applications that share a Valkey.
PREFIX: Final = re.compile("[A-Za-z0-9_.:-]{0,64}")


class CacheKeys:
    """The names of the caches' keys in a connection, which may have a prefix."""

    def __init__(self, catalogue: Catalogue) -> None:
        keys = catalogue.keys
        self.cached_row, self.row_state = keys["cached_row"], keys["row_state"]
        self.delays, self.schedule = keys["row_delays"], keys["row_schedule"]
        self.cached_page, self._page_state = keys["cached_page"], keys["page_state"]
        self.tag, self.views = keys["page_tag"], keys["item_views"]

    def row(self, item: str) -> list[str]:
        """Return the keys of a cached row: row, state."""
        return [self.cached_row(item), self.row_state(item)]

    def page(self, page: str) -> list[str]:
        """Return the keys of a cached page: page, state."""
        return [self.cached_page(page), self._page_state(page)]
