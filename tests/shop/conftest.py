"""All services of the shop, on one server and on a cluster, with SQLite unless a test asks for another database."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from plaza.app import running
from plaza.caching.item_views import ItemViews
from plaza.caching.library import LIBRARY as CACHING_LIBRARY
from plaza.caching.page_cache import PageCache
from plaza.caching.row_cache import RowCache
from plaza.core import paging
from plaza.core.auth import Actor
from plaza.core.clients import UNKNOWN_CLIENT, ClientInfo
from plaza.core.clock import ManualClock
from plaza.core.domain import NO_PROOF, SecondFactorProof
from plaza.core.errors import Unavailable
from plaza.core.functions import Functions
from plaza.core.paging import Snapshots
from plaza.core.passwords import Passwords
from plaza.core.revocations import Revocations
from plaza.core.settings import Settings
from plaza.core.sql import Sql
from plaza.core.valkey import Valkey
from plaza.sessions.model import Login, SessionLimits
from plaza.sessions.service import Sessions
from plaza.sessions.session_finder import SessionFinder
from plaza.sessions.session_store import SessionStore
from plaza.sessions.sign_in import SignIn
from plaza.shop.carts import Carts
from plaza.shop.checkout import Checkout
from plaza.shop.item_desk import ItemDesk
from plaza.shop.item_pages import Storefront
from plaza.shop.items import Items, row_loader
from plaza.shop.library import LIBRARY, SESSION_DATA
from plaza.shop.model import Item, NewItem
from plaza.shop.order_desk import OrderDesk
from plaza.shop.order_history import OrderHistory
from plaza.shop.personal_data import ShopPersonalData
from plaza.shop.row_schedules import RowSchedules
from plaza.shop.views import Views
from tests.databases import with_tables
from tests.http_servers import client_of
from tests.servers import Cluster, Server

ADMIN = Actor("root", "admin")
API_KEY = "the api key of the shop's tests"
KEY = {"x-api-key": API_KEY}


class MemoryAccounts:
    """Accounts with real password hashes, in memory."""

    def __init__(self) -> None:
        self.passwords = Passwords(threads=2)
        self.hashes: dict[str, str] = {}

    async def register(self, name: str, password: str) -> None:
        self.hashes[name] = await self.passwords.hash(password)

    async def check(
        self,
        username: str,
        password: str,
        client: ClientInfo = UNKNOWN_CLIENT,
        proof: SecondFactorProof = NO_PROOF,
    ) -> Actor | None:
        checked = await self.passwords.check(self.hashes.get(username), password)
        return Actor(username, "user") if checked.matches else None

    def new_device(self, username: str) -> str:
        return f"device-of-{username}"


@dataclass
class Shop:
    """All services of the shop."""

    functions: Functions
    sql: Sql
    clock: ManualClock
    revocations: Revocations
    sessions: Sessions
    sign_in: SignIn
    rows: RowCache
    pages: PageCache
    items: Items
    item_views: ItemViews
    views: Views
    carts: Carts
    orders: OrderHistory
    order_desk: OrderDesk
    item_desk: ItemDesk
    checkout: Checkout
    row_schedules: RowSchedules
    storefront: Storefront
    personal_data: ShopPersonalData

    async def guest_token(self) -> str:
        """Start a guest session and return its token."""
        visit = await self.sessions.visit(None)
        return visit.token

    async def login(self, name: str, cookie: str | None = None) -> str:
        visit = await self.sign_in.login(cookie, Login(name, f"{name} password"))
        return visit.token

    async def lines(self, token: str) -> dict[int, int]:
        """Return the lines of a session's cart."""
        _, cart = await self.carts.read(token)
        return {line.id: line.qty for line in cart.items}

    @contextmanager
    def dies_at(self, moment: str) -> Iterator[None]:
        """Simulate a process that dies before it runs a command whose name starts with `moment`."""
        call = self.functions.run

        async def die(command: str, *args: Any) -> Any:
            if command.startswith(moment):
                raise Unavailable("The process died here.")
            return await call(command, *args)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.functions, "run", die)
            with pytest.raises(Unavailable):
                yield


def assemble(
    functions: Functions, sql: Sql, clock: ManualClock, accounts: MemoryAccounts, limits: SessionLimits | None = None
) -> Shop:
    revocations = Revocations(functions.valkey, clock=clock)
    finder = SessionFinder(SessionStore(functions, clock, SESSION_DATA, revocations, limits))
    sessions = Sessions(finder)
    rows, pages = RowCache(functions, row_loader(sql), clock=clock), PageCache(functions, clock=clock)
    items = Items(sql, rows, pages.purge, clock)
    orders, order_desk = OrderHistory(sql, "EUR"), OrderDesk(sql, items, clock, "EUR")
    checkout = Checkout(sql, finder, items, orders, clock)
    item_views = ItemViews(functions, clock)
    return Shop(
        functions=functions,
        sql=sql,
        clock=clock,
        revocations=revocations,
        sessions=sessions,
        sign_in=SignIn(finder, accounts, on_replaced=checkout.finish_for_guest),
        rows=rows,
        pages=pages,
        items=items,
        item_views=item_views,
        views=Views(finder, items, item_views, Snapshots(functions.valkey, clock)),
        carts=Carts(finder, items),
        orders=orders,
        order_desk=order_desk,
        item_desk=ItemDesk(sql, items, clock),
        checkout=checkout,
        row_schedules=RowSchedules(functions, items, clock),
        storefront=Storefront(items, pages, item_views, "EUR"),
        personal_data=ShopPersonalData(sessions, orders, order_desk),
    )


@pytest.fixture
async def functions(valkey: Valkey) -> AsyncIterator[Functions]:
    functions = Functions(valkey, [LIBRARY, CACHING_LIBRARY, paging.LIBRARY])
    await functions.load()
    yield functions
    await functions.outbox.drain()


@pytest.fixture
async def database(tmp_path: Path, busy_disk: None) -> AsyncIterator[Sql]:
    """SQLite with Plaza's tables, all empty."""
    sql = await Sql.open(Settings(data_dir=with_tables(tmp_path)))
    yield sql
    await sql.close()


@pytest.fixture(scope="session")
def accounts() -> MemoryAccounts:
    return MemoryAccounts()


@pytest.fixture
async def registered_accounts(accounts: MemoryAccounts) -> MemoryAccounts:
    """Accounts of Ana and Ben."""
    for name in ("ana", "ben"):
        if name not in accounts.hashes:
            await accounts.register(name, f"{name} password")
    return accounts


@pytest.fixture
async def shop(
    functions: Functions, database: Sql, clock: ManualClock, registered_accounts: MemoryAccounts
) -> AsyncIterator[Shop]:
    shop = assemble(functions, database, clock, registered_accounts)
    yield shop
    await shop.pages.drain()


CreateItem = Callable[..., Awaitable[Item]]
_numbers = itertools.count()


async def create_item_in(shop: Shop, name: str = "GTab 7inch", price: str = "19.90", qty: int = 10) -> Item:
    """Create an item."""
    return await shop.items.create(NewItem(name, "A tablet.", price, qty), f"test-{next(_numbers)}")


@pytest.fixture
def create_item(shop: Shop) -> CreateItem:
    async def create_item(name: str = "GTab 7inch", price: str = "19.90", qty: int = 10) -> Item:
        return await create_item_in(shop, name, price, qty)

    return create_item


@pytest.fixture
async def web(place: Server | Cluster, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """An HTTP client without a cookie."""
    settings = Settings(
        data_dir=with_tables(tmp_path),
        valkey_url=place.url,
        api_key=API_KEY,
        jwt_secret="x" * 32,
        rate_limits=False,
        trusted_proxies=("127.0.0.1",),
    )
    async with running(settings) as plaza, client_of(plaza.app) as client:
        yield client
