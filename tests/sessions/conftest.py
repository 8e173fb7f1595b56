"""Sessions are tested beside the shop that uses them."""

from tests.shop.conftest import book, database, functions, offer, people, prepared, shop, web

__all__ = ["book", "database", "functions", "offer", "people", "prepared", "shop", "web"]
