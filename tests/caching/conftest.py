"""Fixtures of the shop, which uses the caches."""

from tests.shop.conftest import (
    accounts,
    create_item,
    database,
    functions,
    registered_accounts,
    shop,
    web,
)

__all__ = [
    "accounts",
    "create_item",
    "database",
    "functions",
    "registered_accounts",
    "shop",
    "web",
]
