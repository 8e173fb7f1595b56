"""Ways in which another writer can break a town, with a plain client, and what the audit calls each of them."""

from __future__ import annotations

from tests.keyspace.audit.corruptions import articles, challenges, live, people, posts, shop

BREAKS = [
    *people.breaks,
    *posts.breaks,
    *articles.breaks,
    *challenges.breaks,
    *live.breaks,
    *shop.breaks,
]
