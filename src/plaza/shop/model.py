"""The types of the shop, and its pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import asdict

from plaza.core.errors import Conflict, Invalid
from plaza.core.paging import Page, Pagination
from plaza.core.pictures import Picture, PictureId
from plaza.core.sequences import pairs
from plaza.core.validation_messages import described_pattern

MAX_QUANTITY: Final = 999
MAX_STOCK: Final = 1_000_000_000
# It bounds the work of one Lua function.
MAX_LINES: Final = 100
# Merged carts may be longer, so that a login loses nothing.
MAX_MERGED_LINES: Final = 500
# The merges that an account remembers, so that a repeated merge counts once.
MAX_MERGES: Final = 50
MAX_VIEWED_ITEMS: Final = 25
MAX_PICTURES: Final = 4
# Changes of a cart by another service that a session remembers until the account has them, on a cluster.
MAX_CHANGE_BATCHES: Final = 5

ItemId = Annotated[int, Meta(ge=1, lt=10**16, description="Id of an item.", examples=[4042])]
OrderId = Annotated[int, Meta(ge=1, lt=2**31, description="Number of an order.", examples=[5021])]
_PRICE_TEXT: Final = r"[0-9]{1,10}(\.[0-9]{1,2})?"
# The most expensive cart: every line of a merged cart at the highest price and quantity.
_TOTAL_TEXT: Final = r"[0-9]{1,16}(\.[0-9]{1,2})?"
_PRICE: Final = described_pattern(
    "Invalid price. Use a text with at most ten digits and two decimals, such as 19.90", rf"^{_PRICE_TEXT}$(?!\n)"
)
_TOTAL: Final = described_pattern("Invalid total. Use the total of the cart, such as 59.70", rf"^{_TOTAL_TEXT}$(?!\n)")
# Line breaks and tabs, but no other control characters: PostgreSQL cannot store NUL.
_TEXT: Final = described_pattern("Invalid text. Remove the control characters", r"^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]*$")
Price = Annotated[str, Meta(pattern=_PRICE, description="A decimal as text, such as `19.90`.")]
Stock = Annotated[int, Meta(ge=0, le=MAX_STOCK, description="Number of pieces in stock.")]
StockDelta = Annotated[int, Meta(ge=-MAX_STOCK, le=MAX_STOCK, description="Pieces to add; below 0, to remove.")]
Quantity = Annotated[int, Meta(ge=0, le=MAX_QUANTITY, description="1 to 999; 0 removes.")]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
Description = Annotated[str, Meta(max_length=10_000, pattern=_TEXT)]


OrderState = Literal["placed", "paid", "shipped", "done", "cancelled"]
ItemMedia = Annotated[
    list[PictureId], Meta(max_length=MAX_PICTURES, description="Ids of uploaded pictures; the first is shown in lists.")
]

# Ids of items and quantities as they are written in keys. Other services may write quantities above 999.
_ITEM_ID = re.compile(r"[1-9][0-9]{0,15}")
_QUANTITY = re.compile(r"[1-9][0-9]{0,8}")
_STORED_PRICE = re.compile(_PRICE_TEXT)


# The states that follow each state. Shipped goods do not come back to the stock by themselves.
NEXT_STATES: Final[Mapping[OrderState, tuple[OrderState, ...]]] = {
    "placed": ("paid", "cancelled"),
    "paid": ("shipped", "cancelled"),
    "shipped": ("done",),
    "done": (),
    "cancelled": (),
}


class WrongOrderState(Conflict):
    title, code = "The order is in another state", "wrong_state"


class OutOfStock(Conflict):
    title, code = "Not enough stock", "out_of_stock"


class EmptyCart(Conflict):
    title, code = "The cart is empty", "empty_cart"


class PriceChanged(Conflict):
    title, code = "The price has changed", "price_changed"


class ItemChanged(Conflict):
    title, code = "The item has changed", "item_changed"


class NoteChanged(Conflict):
    title, code = "The note has changed", "note_changed"


class CartFull(Conflict):
    title, code = "The cart has too many lines", "cart_full"


class NewOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the customer agreed to."""

    expected_total: (
        Annotated[str, Meta(pattern=_TOTAL, description="The cart's total as the customer saw it; 409 if it changed.")]
        | None
    ) = None


class NewItem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Name
    description: Description
    price: Price
    qty: Stock
    media: ItemMedia = []


class ExpectedItem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the caller saw of an item; 409 `item_changed` if it is different now."""

    name: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    price: Price | UnsetType = UNSET
    media: ItemMedia | UnsetType = UNSET


class ItemChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change of an item. A missing field stays as it is."""

    name: Name | UnsetType = UNSET
    description: Description | UnsetType = UNSET
    price: Price | UnsetType = UNSET
    qty: Stock | UnsetType = UNSET
    media: ItemMedia | UnsetType = UNSET
    withdrawn: Annotated[bool, Meta(description="Not sold or listed any more.")] | UnsetType = UNSET
    expected: ExpectedItem | UnsetType = UNSET

    def columns(self) -> dict[str, Any]:
        """Return the columns to change, without its pictures and whether it is withdrawn."""
        values: dict[str, Any] = {name: value for name, value in asdict(self).items() if value is not UNSET}
        for name in ("media", "withdrawn", "expected"):
            values.pop(name, None)
        if "price" in values:
            values["price"] = hundredths(values["price"])
        if "name" in values:
            values["name"] = clean_name(values["name"])
        return values

    def conflicts(self, row: Mapping[str, Any]) -> list[str]:
        """Return which fields of a row are neither as the caller expected nor as this change makes them."""
        if self.expected is UNSET:
            return []
        seen, wanted, now = (_comparable(texts) for texts in (asdict(self.expected), asdict(self), row))
        if "media" in row:
            now["media"] = [picture["id"] for picture in row["media"]]
        return [name for name, value in seen.items() if now.get(name, []) not in (value, wanted.get(name))]


def _comparable(texts: Mapping[str, Any]) -> dict[str, Sequence[str]]:
    """Return the texts of an item as they are compared: `19.9` is `19.90`, and browsers change line breaks."""
    found = {
        name: texts[name].strip() for name in ("name", "description", "price") if texts.get(name, UNSET) is not UNSET
    }
    if "price" in found:
        found["price"] = price_text(hundredths(found["price"]))
    lines: dict[str, Sequence[str]] = {name: text.splitlines() for name, text in found.items()}
    return lines | ({"media": texts["media"]} if isinstance(texts.get("media"), list) else {})


class Item(msgspec.Struct, frozen=True):
    """An item. `stale` is true if the database is slow or unavailable and the data may be outdated.

    An item that only another service has, in `inv:<id>`, has no price (an empty text) and cannot be ordered.
    """

    id: int
    name: str
    description: str
    price: str
    qty: int
    version: int
    stale: bool = False
    media: list[Picture] | UnsetType = UNSET  # absent if it has none
    withdrawn: bool | UnsetType = UNSET  # absent while it is sold


class ItemsPage(msgspec.Struct, frozen=True):
    items: list[Item]
    pagination: Pagination


class AllItemsQuery(Page, frozen=True, kw_only=True):
    """The query parameters of the operators' list of items."""

    name: Annotated[
        str,
        Meta(
            max_length=200,
            description="Only items with this in the name. Case and accents do not matter.",
            examples=["lamp"],
        ),
    ] = ""


class StockChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Pieces that were added to the stock, or removed from it. Sales at the same time count too."""

    delta: StockDelta


class StockHistoryEntry(msgspec.Struct, frozen=True):
    """A change of an item's stock by an operator. `at` is in Unix seconds."""

    delta: int
    at: float


class NewQuantity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    qty: Quantity


class Line(msgspec.Struct, frozen=True):
    """One line of a cart. `available` is false if the item is no longer sold or there is not enough of it."""

    id: int
    name: str
    price: str
    qty: int
    total: str
    available: bool
    withdrawn: bool | UnsetType = UNSET  # absent while it is sold
    media: list[Picture] | UnsetType = UNSET  # absent if the item has none


class Cart(msgspec.Struct, frozen=True):
    """A cart at current prices."""

    items: list[Line]
    total: str


class OrderLine(msgspec.Struct, frozen=True):
    id: int
    name: str
    price: str
    qty: int
    total: str


class Order(msgspec.Struct, frozen=True):
    """An order, with the prices and the currency at its time. `created_at` is in Unix seconds."""

    id: int
    created_at: float
    items: list[OrderLine]
    total: str
    currency: str
    state: OrderState = "placed"


class OrdersPage(msgspec.Struct, frozen=True):
    orders: list[Order]
    pagination: Pagination


class OperatorOrder(msgspec.Struct, frozen=True):
    """An order as operators see it. `customer` is null for a guest. Times are Unix seconds; null before the state."""

    id: int
    created_at: float
    customer: str | None
    items: list[OrderLine]
    total: str
    currency: str
    state: OrderState
    note: str
    paid_at: float | None
    shipped_at: float | None
    done_at: float | None
    cancelled_at: float | None


class OperatorOrdersPage(msgspec.Struct, frozen=True):
    orders: list[OperatorOrder]
    pagination: Pagination


class OrdersQuery(Page, frozen=True, kw_only=True):
    """The query parameters of the operators' list of orders."""

    state: Annotated[OrderState, Meta(description="Only orders in this state.")] | None = None
    customer: Annotated[str, Meta(max_length=60, description="Only orders of this user.", examples=["ana"])] | None = (
        None
    )


class OrderChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change of an order. A missing field stays as it is."""

    state: OrderState | UnsetType = UNSET
    note: Annotated[str, Meta(max_length=2_000, pattern=_TEXT, description="For operators.")] | UnsetType = UNSET
    expected_note: (
        Annotated[str, Meta(description="The note that you saw; 409 `note_changed` if it is different now.")]
        | UnsetType
    ) = UNSET

    def overwrites(self, note: str) -> bool:
        """Return whether this replaces a note that is neither as the caller expected nor as this change makes it."""
        seen = [text.split() for text in (self.expected_note, self.note) if text is not UNSET]
        return self.expected_note is not UNSET and note.split() not in seen


class NewDelay(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    delay: Annotated[
        float, Meta(ge=-1e9, le=31_536_000, description="Seconds between two copies; 0 or less removes the row.")
    ]


class RowSchedule(msgspec.Struct, frozen=True):
    """The schedule of a cached row. `due_at` is when it is copied next, in Unix seconds."""

    id: int
    delay: float | None
    due_at: float | None


class CacheState(msgspec.Struct, frozen=True):
    """The state of the row cache. `late_seconds` is how late the worker is."""

    rows: list[RowSchedule]
    pagination: Pagination
    scheduled: int
    late_seconds: float


def is_item_id(text: str) -> bool:
    """Return whether a text can be the id of an item. Other services may write other ids into the documented keys."""
    return _ITEM_ID.fullmatch(text) is not None


def is_price(text: str) -> bool:
    """Return whether a text is a price as Plaza writes it."""
    return _STORED_PRICE.fullmatch(text) is not None


def cart_lines(flat: Sequence[str]) -> dict[int, int]:
    """Return the quantity of each item from `item, quantity, …`. A line that cannot be read is left out."""
    return {int(item): int(qty) for item, qty in pairs(flat) if is_item_id(item) and _QUANTITY.fullmatch(qty)}


def hundredths(price: str) -> int:
    """Return a price in hundredths: `19.9` → 1990."""
    units, _, decimals = price.partition(".")
    return int(units) * 100 + int(decimals.ljust(2, "0"))


def price_text(amount: int) -> str:
    """Return a price as text: 1990 → `19.90`."""
    return f"{amount // 100}.{amount % 100:02d}"


def clean_name(name: str) -> str:
    """Return the name of an item without surrounding spaces."""
    name = name.strip()
    if not name or not name.isprintable():
        raise Invalid("Invalid name. Use 1 to 200 printable characters.", field="name")
    return name
