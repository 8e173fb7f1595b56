"""The operators' pages of items: create, edit, change the stock by a difference, pictures, withdraw."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import msgspec
from msgspec import UNSET

from plaza.core.auth import Actor
from plaza.core.errors import Conflict, Invalid, NotFound
from plaza.core.http.access import ADMIN
from plaza.core.http.multipart import OVERHEAD_BYTES
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.media.uploads import Uploads
from plaza.shop.item_desk import ItemDesk
from plaza.shop.items import Items
from plaza.shop.model import (
    MAX_PICTURES,
    AllItemsQuery,
    ExpectedItem,
    Item,
    ItemChange,
    ItemChanged,
    ItemId,
    NewItem,
    StockChange,
)
from plaza.web import attachments, forms
from plaza.web.operator_navigation import confirmation, filtered_path, operator_page
from plaza.web.page_responses import PageResponses
from plaza.web.page_routes import PageRoutes
from plaza.web.text_html import next_page_link

page = PageRoutes()

PATH: Final = "/app/operator/items"
TAB: Final = "Items"
ROWS: Final = 50
# The texts that operators edit.
_TEXTS: Final = ("name", "description", "price")
_CONFLICT: Final = (
    "Another operator has changed what you edited. Compare the marked texts; saving again replaces theirs."
)
EMPTY_FORM: Final = {"name": "", "description": "", "price": "", "qty": "0"}


@page.get("/operator/items", access=ADMIN)
async def items(request: Request, site: PageResponses, desk: ItemDesk, q: str = "", cursor: str = "") -> Response[str]:
    """List items by name, newest first, with the form to create one; a number leads to its item."""
    given = q.strip()[:200]
    if (id := await _find_number(desk, given.removeprefix("#"))) is not None:
        visitor = await site.visitors.from_request(request)
        return Response(status=303, headers=[*visitor.cookie, ("location", f"{PATH}/{id}")])
    return await _list_page(request, site, desk, given, cursor)


async def _find_number(desk: ItemDesk, text: str) -> int | None:
    """Return the number of an item from a text; None if no item has it."""
    try:
        return (await desk.read(msgspec.convert(text, ItemId, strict=False))).id
    except (msgspec.ValidationError, NotFound):
        return None


async def _list_page(
    request: Request,
    site: PageResponses,
    desk: ItemDesk,
    q: str = "",
    cursor: str = "",
    *,
    status: int = 200,
    **context: Any,
) -> Response[str]:
    visitor = await site.visitors.from_request(request)
    found = await desk.page(AllItemsQuery(name=q, limit=ROWS, cursor=cursor or None))
    more = next_page_link(filtered_path(PATH, q=q), found.pagination)
    values = {"problem": "", "field": "", "values": EMPTY_FORM, "q": q, "more": more}
    template = "operator-items.html"
    shown = {**values, **context, "items": found.items}
    return operator_page(request, site, visitor, template, TAB, return_path=PATH, status=status, **shown)


@page.post("/operator/items", access=ADMIN, logged_fields=("name", "price", "qty"))
async def create_item(
    request: Request, body: bytes, site: PageResponses, items: Items, desk: ItemDesk
) -> Response[str]:
    """Create an item."""
    visitor = await site.visitors.from_request(request)
    try:
        new = forms.read_form(body, NewItem, **forms.given_fields(body, "description"))
        created = await items.create(new, site.idempotency_key(request, body), visitor.require_user())
    except Invalid as error:
        field, given = str(error.extra.get("field", "")), forms.parse_form(body)
        values = {name: given.get(name, text) for name, text in EMPTY_FORM.items()}
        context: dict[str, Any] = {"problem": error.detail, "field": field, "values": values}
        return await _list_page(request, site, desk, status=error.status, **context)
    return site.form_response(request, visitor, b"", f"{PATH}/{created.id}")


@page.get("/operator/items/{id}", access=ADMIN)
async def item(request: Request, site: PageResponses, id: ItemId, desk: ItemDesk) -> Response[str]:
    """Show an item with the forms to change it."""
    return await _item_page(request, site, desk, id)


async def _item_page(
    request: Request, site: PageResponses, desk: ItemDesk, id: int, error: Conflict | Invalid | None = None
) -> Response[str]:
    visitor = await site.visitors.from_request(request)
    found = await desk.read(id)
    given = forms.parse_form(request.body) if error is not None else {}
    saved = {name: getattr(found, name).replace("\r\n", "\n") for name in _TEXTS}  # as browsers send them back
    changed = forms.edited_fields(given, *_TEXTS)
    seen = {name: given.get(forms.SEEN + name) for name in changed}
    context: dict[str, Any] = {
        "item": found,
        "saved": saved,
        "values": saved | changed,
        "different": [name for name, text in changed.items() if saved[name] not in (text, seen[name])],
        "delta": given.get("delta", ""),
        "pictures": found.media or [],
        "max_pictures": MAX_PICTURES,
        "history": await desk.stock_history(id),
        "problem": "" if error is None else _CONFLICT if isinstance(error, ItemChanged) else error.detail,
        "field": "" if error is None else str(error.extra.get("field", "")),
    }
    status, template = 200 if error is None else error.status, "operator-item.html"
    return operator_page(request, site, visitor, template, TAB, return_path=f"{PATH}/{id}", status=status, **context)


@page.post("/operator/items/{id}", access=ADMIN, logged_fields=("name", "price", "withdrawn"))
async def change_item(
    request: Request, body: bytes, site: PageResponses, id: ItemId, items: Items, desk: ItemDesk
) -> Response[str]:
    """Change an item, withdraw it or bring it back."""
    visitor = await site.visitors.from_request(request)
    given = forms.parse_form(body)
    fields: dict[str, Any] = forms.edited_fields(given, *_TEXTS, "withdrawn")
    fields["expected"] = {name: given[forms.SEEN + name] for name in fields if forms.SEEN + name in given}
    try:
        await items.change(id, forms.convert_fields(fields, ItemChange), visitor.require_user())
    except (Invalid, ItemChanged) as error:
        return await _item_page(request, site, desk, id, error)
    return site.form_response(request, visitor, b"", f"{PATH}/{id}")


@page.get("/operator/items/{id}/withdraw", access=ADMIN)
async def confirm_withdrawal(request: Request, site: PageResponses, id: ItemId, desk: ItemDesk) -> Response[str]:
    """Show what a withdrawal does, before it is done."""
    found = await desk.read(id)
    return await confirmation(
        request,
        site,
        TAB,
        title=f"Withdraw {found.name}?",
        effects=[
            "The shop does not list, find or sell it any more, and carts show it as not available.",
            "Its orders and its stock stay. You can bring it back at any time.",
        ],
        action=f"{PATH}/{id}",
        fields={"withdrawn": "true"},
        button="Withdraw the item",
        back=f"{PATH}/{id}",
    )


@page.post("/operator/items/{id}/stock", access=ADMIN, logged_fields=("delta",))
async def change_stock(request: Request, body: bytes, site: PageResponses, id: ItemId, desk: ItemDesk) -> Response[str]:
    """Change the stock by a number of pieces. The same form counts once."""
    visitor = await site.visitors.from_request(request)
    try:
        delta = forms.read_form(body, StockChange).delta
        await desk.change_stock(id, delta, site.idempotency_key(request, body))
    except (Conflict, Invalid) as error:
        return await _item_page(request, site, desk, id, error)
    return site.form_response(request, visitor, b"", f"{PATH}/{id}")


@page.post(
    "/operator/items/{id}/pictures",
    access=ADMIN,
    takes_files=True,
    body_limit=lambda settings: MAX_PICTURES * settings.media_max_bytes + OVERHEAD_BYTES,
)
async def add_pictures(
    request: Request, body: bytes, site: PageResponses, id: ItemId, items: Items, desk: ItemDesk, uploads: Uploads
) -> Response[str]:
    """Upload pictures and add them to an item."""
    visitor = await site.visitors.from_request(request)
    actor, key = visitor.require_user(), site.idempotency_key(request, body)
    added: list[str] = []

    def with_added(shown: list[str]) -> list[str]:
        return _limited([*shown, *(each for each in added if each not in shown)])

    try:
        _limited([*_picture_ids(await desk.read(id)), *(file.filename for file in attachments.chosen_files(request))])
        attached = await attachments.attach(request, actor, forms.parse_form(body), uploads, key)
        added += [each["id"] for each in attached]
        await _change_pictures(items, desk, actor, id, with_added)
    except Invalid as error:
        return await _item_page(request, site, desk, id, error)
    return site.form_response(request, visitor, b"", f"{PATH}/{id}")


@page.get("/operator/items/{id}/pictures/remove", access=ADMIN)
async def confirm_picture_removal(
    request: Request, site: PageResponses, id: ItemId, desk: ItemDesk, picture: str = ""
) -> Response[str]:
    """Show what the removal of a picture does, before it is done."""
    found = await desk.read(id)
    shown = _picture_ids(found)
    if picture not in shown:
        raise NotFound("The item does not have this picture.")
    return await confirmation(
        request,
        site,
        TAB,
        title=f"Remove picture {shown.index(picture) + 1} of {found.name}?",
        effects=["The pages of the item do not show it any more, and its files are deleted if nothing else shows it."],
        fields={"picture": picture},
        button="Remove the picture",
        back=f"{PATH}/{id}",
    )


@page.post("/operator/items/{id}/pictures/remove", access=ADMIN, logged_fields=("picture", "first"))
async def remove_picture(
    request: Request, body: bytes, site: PageResponses, id: ItemId, items: Items, desk: ItemDesk
) -> Response[str]:
    """Remove a picture from an item, or show it first."""
    visitor = await site.visitors.from_request(request)
    given = forms.parse_form(body)
    chosen = given.get("first") or given.get("picture", "")

    def kept(shown: list[str]) -> list[str]:
        others = [each for each in shown if each != chosen]
        return [chosen, *others] if "first" in given and chosen in shown else others

    await _change_pictures(items, desk, visitor.require_user(), id, kept)
    return site.form_response(request, visitor, b"", f"{PATH}/{id}")


def _picture_ids(item: Item) -> list[str]:
    return [] if item.media is UNSET else [picture.id for picture in item.media]


def _limited(pictures: list[str]) -> list[str]:
    if len(pictures) > MAX_PICTURES:
        raise Invalid(f"An item has at most {MAX_PICTURES} pictures. Remove one first.", field="media")
    return pictures


async def _change_pictures(
    items: Items, desk: ItemDesk, actor: Actor, id: int, change: Callable[[list[str]], list[str]]
) -> None:
    """Change which pictures an item has; again if another operator changes them at the same time."""
    while (wanted := change(shown := _picture_ids(await desk.read(id)))) != shown:
        with suppress(ItemChanged):
            await items.change(id, ItemChange(media=wanted, expected=ExpectedItem(media=shown)), actor)
            return
