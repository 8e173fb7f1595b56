"""Records are exported in an order in which they can be imported."""

from __future__ import annotations

from plaza.community.records import in_thread_order
from plaza.community.shop_records import shop_part
from plaza.core.sql import Sql


def test_a_reply_comes_after_its_parent_whatever_their_times_and_ids() -> None:
    comments: dict[str, tuple[int, str | None]] = {
        "c": (5, None),
        "b": (5, "c"),  # in the same millisecond
        "a": (5, "b"),
        "d": (3, "e"),  # older than its parent: another service wrote it
        "e": (9, None),
        "f": (1, "gone"),
    }
    assert in_thread_order(comments) == ["f", "c", "b", "a", "e", "d"]
    assert sorted(in_thread_order({"x": (1, "y"), "y": (1, "x")})) == ["x", "y"], "a cycle ends"


async def test_prices_and_totals_are_those_that_the_shop_takes(sql: Sql) -> None:
    shop = shop_part(sql)
    item = {"id": 1, "name": "Cup", "description": "", "price": "99999999999.00", "qty": 1}
    (refused,) = await shop.apply("item", [item])
    assert (refused.status, refused.field) == ("error", "price"), "no route would show it"
    order = {"id": 1, "buyer": "user:ana", "created_ms": 1, "total": "9999999999999.90"}
    (created,) = await shop.apply("order", [order])
    assert created.status == "created", created
