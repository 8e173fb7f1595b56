"""What the shop deals in, and the rules that need no store."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from plaza.core.errors import Conflict, Invalid, Unauthenticated
from plaza.core.paging import Pagination
from plaza.core.validation_messages import described_pattern

MOST_PER_LINE: Final = 999
# No person's cart comes near; it bounds what one function has to move.
MOST_LINES: Final = 100

ItemId = Annotated[int, Meta(ge=1, lt=10**16, description="Id of an item.")]
_PRICE: Final = described_pattern(
    "A price is a text of up to ten digits, and two behind a point: 19.90", r"^[0-9]{1,10}(\.[0-9]{1,2})?$(?!\n)"
)
# Line breaks and tabs, but no other control characters: PostgreSQL keeps no NUL.
_TEXT: Final = described_pattern("Give a text without control characters", r"^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]*$")
_SESSION: Final = described_pattern("An id of a session is 32 of 0-9 a-f", r"^[0-9a-f]{32}$(?!\n)")
Price = Annotated[str, Meta(pattern=_PRICE, description="A decimal as text, such as `19.90`.")]
Stock = Annotated[int, Meta(ge=0, le=1_000_000_000, description="How many there are.")]
Quantity = Annotated[int, Meta(ge=0, le=MOST_PER_LINE, description="1 to 999; 0 removes.")]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
Description = Annotated[str, Meta(max_length=10_000, pattern=_TEXT)]
SessionId = Annotated[str, Meta(pattern=_SESSION, description="Id of a session; not its token.")]


# `ItemId` and `Quantity` (but 0), as they are written in keys.
_ITEM_ID = re.compile(r"[1-9][0-9]{0,15}")
_QUANTITY = re.compile(r"[1-9][0-9]{0,2}")


class OutOfStock(Conflict):
    title, code = "There is not enough left", "out_of_stock"


class EmptyCart(Conflict):
    title, code = "The cart is empty", "empty_cart"


class CartFull(Conflict):
    title, code = "The cart has too many lines", "cart_full"


class SessionMoved(Conflict):
    title, code = "This session was replaced by a login", "session_moved"


class WrongLogin(Unauthenticated):
    title, code = "Username or password is wrong", "wrong_login"


class NewItem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Name
    description: Description
    price: Price
    qty: Stock


class ItemChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is left out stays as it is."""

    name: Name | UnsetType = UNSET
    description: Description | UnsetType = UNSET
    price: Price | UnsetType = UNSET
    qty: Stock | UnsetType = UNSET

    def columns(self) -> dict[str, Any]:
        """The columns that change."""
        given: dict[str, Any] = {
            name: value for name, value in msgspec.structs.asdict(self).items() if value is not UNSET
        }
        if "price" in given:
            given["price"] = hundredths(given["price"])
        if "name" in given:
            given["name"] = clean_name(given["name"])
        return given


class Item(msgspec.Struct, frozen=True):
    """An item. `stale` says that the database is slow or away and this is how the item last was."""

    id: int
    name: str
    description: str
    price: str
    qty: int
    version: int
    stale: bool = False


class ItemsPage(msgspec.Struct, frozen=True):
    items: list[Item]
    pagination: Pagination


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


class Cart(msgspec.Struct, frozen=True):
    """A cart at today's prices."""

    items: list[Line]
    total: str


class OrderLine(msgspec.Struct, frozen=True):
    id: int
    name: str
    price: str
    qty: int
    total: str


class Order(msgspec.Struct, frozen=True):
    """An order, at the prices of its moment. `created_at` is in Unix seconds."""

    id: int
    created_at: float
    items: list[OrderLine]
    total: str


class OrdersPage(msgspec.Struct, frozen=True):
    orders: list[Order]
    pagination: Pagination


class Login(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    username: Annotated[str, Meta(min_length=1, max_length=100)]
    password: Annotated[str, Meta(min_length=1, max_length=1_000)]
    code: Annotated[str, Meta(min_length=6, max_length=40)] | None = None  # for accounts with a second factor


class Session(msgspec.Struct, frozen=True):
    """A session. Its `id` is no secret: the token cannot be found from it. Times are Unix seconds."""

    id: str
    user: str | None
    created_at: float
    last_seen: float
    expires_at: float
    current: bool


class SessionsPage(msgspec.Struct, frozen=True):
    sessions: list[Session]
    pagination: Pagination


class NewDelay(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    delay: Annotated[float, Meta(ge=-1e9, le=31_536_000, description="Seconds between copies; 0 or less: none.")]


class RowSchedule(msgspec.Struct, frozen=True):
    """How a row is cached. Times are Unix seconds; `due_at` is when it is copied next."""

    id: int
    delay: float | None
    due_at: float | None


class CacheState(msgspec.Struct, frozen=True):
    """The caches, for operators. `late_seconds` is how far the worker is behind."""

    rows: list[RowSchedule]
    pagination: Pagination
    scheduled: int
    late_seconds: float


def is_item_id(text: str) -> bool:
    """Whether an item may be called so. Other services may write the documents' keys, too."""
    return _ITEM_ID.fullmatch(text) is not None


def lines_of(flat: Sequence[str]) -> dict[int, int]:
    """Item, quantity, … of a cart as it is kept, by the numbers of items; what cannot be a line is none."""
    pairs = zip(flat[::2], flat[1::2], strict=True)
    return {int(item): int(qty) for item, qty in pairs if is_item_id(item) and _QUANTITY.fullmatch(qty)}


def hundredths(price: str) -> int:
    """`19.9` → 1990."""
    whole, _, rest = price.partition(".")
    return int(whole) * 100 + int(rest.ljust(2, "0"))


def price_text(amount: int) -> str:
    """1990 → `19.90`."""
    return f"{amount // 100}.{amount % 100:02d}"


def clean_name(name: str) -> str:
    name = name.strip()
    if not name or not name.isprintable():
        raise Invalid("The name has 1 to 200 characters that can be shown.", field="name")
    return name
