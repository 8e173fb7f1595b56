"""Corruptions that another client can cause, and the finding that the audit must report for each."""

from __future__ import annotations

from tests.keyspace.audit.corruptions import articles, challenges, live, posts, shop, threads, users

CORRUPTIONS = [
    *users.corruptions,
    *posts.corruptions,
    *articles.corruptions,
    *challenges.corruptions,
    *live.corruptions,
    *shop.corruptions,
    *threads.corruptions,
]
