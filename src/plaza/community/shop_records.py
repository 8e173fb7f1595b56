"""Items and orders as records: the rows of their tables. Prices are decimal texts."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from plaza.community.challenge_records import RowId
from plaza.community.records import RowRecords, TablePart
from plaza.core.pictures import StoredPicture, decode_stored, encode_pictures
from plaza.core.sql import Sql
from plaza.shop.model import OrderState, hundredths, price_text
from plaza.shop.tables import ITEMS, LINES, ORDERS, STOCK_CHANGES
from plaza.social.model import Millis

SHOP_KINDS: Final = ("item", "order", "order_line", "stock_change")
# As many digits as the shop takes of a price, and as an order of the largest cart has.
PriceText = Annotated[str, Meta(pattern=r"^[0-9]{1,10}\.[0-9]{2}$")]
TotalText = Annotated[str, Meta(pattern=r"^[0-9]{1,16}\.[0-9]{2}$")]
Quantity = Annotated[int, Meta(ge=0)]


class _ItemRecord(msgspec.Struct, forbid_unknown_fields=True):
    id: RowId
    name: Annotated[str, Meta(min_length=1, max_length=200)]
    description: str
    price: PriceText
    qty: Quantity
    withdrawn_ms: Millis | None = None
    created_ms: Millis | None = None
    media: list[StoredPicture] = []


class _OrderRecord(msgspec.Struct, forbid_unknown_fields=True):
    id: RowId
    buyer: Annotated[str, Meta(max_length=60)]
    created_ms: Millis
    total: TotalText
    currency: Annotated[str, Meta(pattern="^[A-Z]{3}$")] | None = None
    state: OrderState = "placed"
    note: str | None = None
    paid_ms: Millis | None = None
    shipped_ms: Millis | None = None
    done_ms: Millis | None = None
    cancelled_ms: Millis | None = None


class _OrderLineRecord(msgspec.Struct, forbid_unknown_fields=True):
    order_id: RowId
    item_id: RowId
    name: Annotated[str, Meta(max_length=200)]
    price: PriceText
    qty: Annotated[int, Meta(ge=1)]


class _StockChangeRecord(msgspec.Struct, forbid_unknown_fields=True):
    id: RowId
    item_id: RowId
    delta: int
    created_ms: Millis


def shop_part(sql: Sql, *, pictures: bool = True) -> TablePart:
    write, read = {"price": price_text, "total": price_text}, {"price": hundredths, "total": hundredths}
    return TablePart(
        sql,
        {
            "item": RowRecords(
                ITEMS,
                _ItemRecord,
                {**write, "media": lambda text: msgspec.to_builtins(decode_stored(text)) if pictures else []},
                {**read, "media": lambda media: encode_pictures(media) or None},
                lambda row: {"version": 1},
            ),
            # The carts of imported orders are gone; the column is unique.
            "order": RowRecords(ORDERS, _OrderRecord, write, read, lambda row: {"cart": f"import-{row['id']}"}),
            "order_line": RowRecords(LINES, _OrderLineRecord, write, read),
            "stock_change": RowRecords(STOCK_CHANGES, _StockChangeRecord),
        },
    )
