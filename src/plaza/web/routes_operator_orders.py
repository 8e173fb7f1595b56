"""The operators' pages of orders: find, read, move from state to state, note, download."""

from __future__ import annotations

from typing import Any, Final, get_args

import msgspec

from plaza.core import csv_text
from plaza.core.errors import Conflict, NotFound
from plaza.core.http.access import ADMIN
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.shop.model import NEXT_STATES, NoteChanged, OperatorOrder, OrderChange, OrderId, OrdersQuery, OrderState
from plaza.shop.order_desk import OrderDesk
from plaza.shop.routes_operator import orders_download
from plaza.web import forms
from plaza.web.operator_navigation import confirmation, filtered_path, operator_page
from plaza.web.page_responses import PageResponses
from plaza.web.page_routes import PageRoutes
from plaza.web.text_html import next_page_link

page = PageRoutes()

PATH: Final = "/app/operator/orders"
TAB: Final = "Orders"
ROWS: Final = 50
# The buttons that bring an order to a state.
BUTTONS: Final = {"paid": "Mark as paid", "shipped": "Mark as shipped", "done": "Mark as done"}


def _query(customer: str, state: str, cursor: str = "") -> OrdersQuery:
    known = state if state in get_args(OrderState) else None
    fields = {
        "customer": customer.strip().removeprefix("@") or None,
        "state": known,
        "limit": ROWS,
        "cursor": cursor or None,
    }
    return forms.convert_fields(fields, OrdersQuery)


@page.get("/operator/orders", access=ADMIN)
async def orders(
    request: Request,
    site: PageResponses,
    desk: OrderDesk,
    number: str = "",
    customer: str = "",
    state: str = "",
    cursor: str = "",
) -> Response[str]:
    """List orders by customer and state, newest first; a number leads to its order."""
    visitor = await site.visitors.from_request(request)
    given = number.strip().removeprefix("#")
    if (id := await _find_number(desk, given)) is not None:
        return Response(status=303, headers=[*visitor.cookie, ("location", f"{PATH}/{id}")])
    found = await desk.page(_query(customer, state, cursor))
    path = filtered_path(PATH, customer=customer, state=state)
    context: dict[str, Any] = {
        "orders": [] if given else found.orders,
        "empty": "There is no order with this number." if given else "No orders match.",
        "number": number,
        "customer": customer,
        "state": state,
        "states": get_args(OrderState),
        "download": filtered_path(f"{PATH}.csv", customer=customer, state=state),
        "more": "" if given else next_page_link(path, found.pagination),
    }
    return operator_page(request, site, visitor, "operator-orders.html", TAB, **context)


async def _find_number(desk: OrderDesk, text: str) -> int | None:
    """Return the number of an order from a text; None if no order has it."""
    try:
        id = msgspec.convert(text, OrderId, strict=False)
        return (await desk.read(id)).id
    except (msgspec.ValidationError, NotFound):
        return None


@page.get("/operator/orders.csv", access=ADMIN, media_type=csv_text.MEDIA_TYPE, limit_first=True)
async def orders_csv(desk: OrderDesk, customer: str = "", state: str = "") -> Response[str]:
    """Download the orders that match as CSV."""
    return orders_download(desk, _query(customer, state))


@page.get("/operator/orders/{id}", access=ADMIN)
async def order(request: Request, site: PageResponses, id: OrderId, desk: OrderDesk) -> Response[str]:
    """Show an order, its history and what can be done with it."""
    return await _order_page(request, site, await desk.read(id))


async def _order_page(
    request: Request,
    site: PageResponses,
    found: OperatorOrder,
    problem: str = "",
    status: int = 200,
    note: str | None = None,
) -> Response[str]:
    visitor = await site.visitors.from_request(request)
    times = (found.created_at, found.paid_at, found.shipped_at, found.done_at, found.cancelled_at)
    history = [(state, at) for state, at in zip(get_args(OrderState), times, strict=True) if at is not None]
    context: dict[str, Any] = {
        "order": found,
        "history": sorted(history, key=lambda entry: entry[1]),
        "buttons": [(state, BUTTONS[state]) for state in NEXT_STATES[found.state] if state in BUTTONS],
        "can_cancel": "cancelled" in NEXT_STATES[found.state],
        "problem": problem,
        "note": found.note if note is None else note,
    }
    path = f"{PATH}/{found.id}"
    template = "operator-order.html"
    return operator_page(request, site, visitor, template, TAB, return_path=path, status=status, **context)


@page.post("/operator/orders/{id}", access=ADMIN, logged_fields=("state",))
async def change_order(
    request: Request, body: bytes, site: PageResponses, id: OrderId, desk: OrderDesk
) -> Response[str]:
    """Change the state or the note of an order."""
    visitor = await site.visitors.from_request(request)
    try:
        await desk.change(id, forms.read_form(body, OrderChange, **forms.given_fields(body, "note", "expected_note")))
    except NoteChanged as error:
        detail = "Another operator has changed the note. Saving again replaces theirs."
        given = forms.parse_form(body)["note"]
        return await _order_page(request, site, await desk.read(id), detail, error.status, given)
    except Conflict as error:
        return await _order_page(request, site, await desk.read(id), error.detail, error.status)
    return site.form_response(request, visitor, b"", f"{PATH}/{id}")


@page.get("/operator/orders/{id}/cancel", access=ADMIN)
async def confirm_cancellation(request: Request, site: PageResponses, id: OrderId, desk: OrderDesk) -> Response[str]:
    """Show what a cancellation does, before it is done."""
    found = await desk.read(id)
    if "cancelled" not in NEXT_STATES[found.state]:
        visitor = await site.visitors.from_request(request)
        return Response(status=303, headers=[*visitor.cookie, ("location", f"{PATH}/{id}")])
    pieces = ", ".join(f"{line.qty} × {line.name}" for line in found.items)
    effects = [f"Back in stock: {pieces}.", "A cancelled order stays cancelled."]
    if found.customer:
        effects.append(f"{found.customer} is notified.")
    if found.paid_at:
        effects.append("It is paid. Plaza does not pay money back: do that yourself.")
    return await confirmation(
        request,
        site,
        TAB,
        title=f"Cancel order {id}?",
        effects=effects,
        action=f"{PATH}/{id}",
        fields={"state": "cancelled"},
        button="Cancel the order",
        back=f"{PATH}/{id}",
    )
