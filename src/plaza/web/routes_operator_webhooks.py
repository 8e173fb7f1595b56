"""The operators' webhooks pages: endpoints with their state, their last deliveries, and the forms to manage them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from plaza.core.errors import Conflict, Gone, Invalid
from plaza.core.http.access import ADMIN
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.paging import Page
from plaza.web import forms
from plaza.web.operator_navigation import confirmation, operator_page
from plaza.web.page_responses import PageResponses
from plaza.web.page_routes import PageRoutes
from plaza.web.text_html import next_page_link
from plaza.webhooks.deliveries import Deliveries
from plaza.webhooks.endpoints import Webhooks
from plaza.webhooks.model import DeliveryId, EndpointResponse, NewWebhook, NoWebhook, WebhookChange, WebhookId

page = PageRoutes()

PATH: Final = "/app/operator/webhooks"
TAB: Final = "Webhooks"
DELIVERIES_SHOWN: Final = 50
EMPTY_FORM: Final = {"url": "", "types": "*", "description": "", "include_imports": ""}


@page.get("/operator/webhooks", access=ADMIN)
async def webhook_list(request: Request, site: PageResponses, webhooks: Webhooks) -> Response[str]:
    """List webhooks, with the form to add one."""
    return await _list_page(request, site, webhooks)


async def _list_page(
    request: Request, site: PageResponses, webhooks: Webhooks, *, status: int = 200, **context: Any
) -> Response[str]:
    visitor = await site.visitors.from_request(request)
    shown = {"problem": "", "field": "", "values": EMPTY_FORM, "webhooks": await webhooks.list_all(), **context}
    template = "operator-webhooks.html"
    return operator_page(request, site, visitor, template, TAB, return_path=PATH, status=status, **shown)


@page.post("/operator/webhooks", access=ADMIN, logged_fields=("types",))
async def add_webhook(
    request: Request, body: bytes, site: PageResponses, webhooks: Webhooks, deliveries: Deliveries
) -> Response[str]:
    """Add a webhook and show its secret this once."""
    visitor = await site.visitors.from_request(request)
    try:
        new = forms.read_form(body, NewWebhook, **_types_and_imports(body))
        created = await webhooks.create(visitor.name, new, site.idempotency_key(request, body))
    except (Conflict, Invalid) as error:
        return await _list_page(request, site, webhooks, status=error.status, **_refusal(body, error))
    return await _webhook_page(request, site, webhooks, deliveries, created.id, secret=created.secret)


def _types_and_imports(body: bytes) -> dict[str, Any]:
    values = forms.parse_form(body)
    types = values.get("types", "").replace(",", " ").split()
    return {"types": types, "include_imports": values.get("include_imports") == "1"}


def _refusal(body: bytes, error: Conflict | Invalid) -> dict[str, Any]:
    """Return what a page shows after a refused form: why, and what was typed."""
    values = EMPTY_FORM | forms.parse_form(body)
    return {"problem": error.detail, "field": str(error.extra.get("field", "")), "values": values}


@page.get("/operator/webhooks/{id}", access=ADMIN)
async def webhook_details(
    request: Request, site: PageResponses, webhooks: Webhooks, deliveries: Deliveries, id: WebhookId, cursor: str = ""
) -> Response[str]:
    """Show a webhook and its last deliveries."""
    return await _webhook_page(request, site, webhooks, deliveries, id, cursor)


async def _webhook_page(
    request: Request,
    site: PageResponses,
    webhooks: Webhooks,
    deliveries: Deliveries,
    id: str,
    cursor: str = "",
    *,
    secret: str = "",
    rotated: bool = False,
    status: int = 200,
    **refusal: Any,
) -> Response[str]:
    visitor = await site.visitors.from_request(request)
    context = await _details(webhooks, deliveries, id, cursor)
    webhook = context["webhook"]
    imports = "1" if webhook.include_imports else ""
    saved = {"url": webhook.url, "description": webhook.description, "include_imports": imports}
    saved["types"] = " ".join(webhook.types)
    shown = {"secret": secret, "rotated": rotated, "problem": "", "field": "", **refusal, **context}
    shown["saved"] = saved
    shown["values"] = saved | refusal.get("values", {})
    template = "operator-webhook.html"
    return operator_page(request, site, visitor, template, TAB, return_path=f"{PATH}/{id}", status=status, **shown)


@page.post("/operator/webhooks/{id}", access=ADMIN, logged_fields=("types",))
async def change_webhook(
    request: Request, body: bytes, site: PageResponses, webhooks: Webhooks, deliveries: Deliveries, id: WebhookId
) -> Response[str]:
    """Change the URL, the event types or the description of a webhook."""
    visitor = await site.visitors.from_request(request)
    given = {"include_imports": "", **forms.parse_form(body)}  # browsers do not send what is not ticked
    edited = forms.edited_fields(given, *EMPTY_FORM)
    try:
        converted = {name: value for name, value in _types_and_imports(body).items() if name in edited}
        await webhooks.change(id, forms.convert_fields({**edited, **converted}, WebhookChange))
    except Invalid as error:
        refusal = {**_refusal(body, error), "values": edited}
        return await _webhook_page(request, site, webhooks, deliveries, id, status=error.status, **refusal)
    return site.form_response(request, visitor, b"", f"{PATH}/{id}")


async def _details(webhooks: Webhooks, deliveries: Deliveries, id: str, cursor: str = "") -> dict[str, Any]:
    webhook = await webhooks.get(id)
    found = await deliveries.page(id, Page(limit=DELIVERIES_SHOWN, cursor=cursor or None))
    more = next_page_link(f"{PATH}/{id}", found.pagination)
    return {"webhook": webhook, "deliveries": found.deliveries, "more": more}


async def _changed(
    request: Request,
    body: bytes,
    site: PageResponses,
    webhooks: Webhooks,
    deliveries: Deliveries,
    id: str,
    message: str,
) -> Response[str]:
    """Respond to a button: with the changed details, or with the page."""
    visitor = await site.visitors.from_request(request)
    context = await _details(webhooks, deliveries, id)
    template = "operator-webhook-details.html"
    return site.form_response(request, visitor, body, f"{PATH}/{id}", template, message=message, **context)


@page.post("/operator/webhooks/{id}/test", access=ADMIN)
async def send_test(
    request: Request, body: bytes, site: PageResponses, webhooks: Webhooks, deliveries: Deliveries, id: WebhookId
) -> Response[str]:
    """Send a test event."""
    message = _describe(await deliveries.test(id))
    return await _changed(request, body, site, webhooks, deliveries, id, message)


def _describe(response: EndpointResponse) -> str:
    return "The test event was delivered." if response.delivered else f"Not delivered. {response.error}"


@page.get("/operator/webhooks/{id}/disable", access=ADMIN)
async def confirm_disabling(request: Request, site: PageResponses, webhooks: Webhooks, id: WebhookId) -> Response[str]:
    """Show what disabling does, before it is done."""
    webhook = await webhooks.get(id)
    return await confirmation(
        request,
        site,
        TAB,
        title="Disable the webhook?",
        effects=[
            f"{webhook.url} receives nothing until you enable the webhook again.",
            "What happens until then is never sent. Events that already wait are sent when it is enabled.",
        ],
        action=f"{PATH}/{id}/switch",
        fields={"on": "0"},
        button="Disable the webhook",
        back=f"{PATH}/{id}",
    )


@page.post("/operator/webhooks/{id}/switch", access=ADMIN, logged_fields=("on",))
async def switch_webhook(
    request: Request, body: bytes, site: PageResponses, webhooks: Webhooks, deliveries: Deliveries, id: WebhookId
) -> Response[str]:
    """Enable or disable a webhook."""
    on = forms.is_on(body)
    await webhooks.change(id, WebhookChange(enabled=on))
    message = "Webhook enabled." if on else "Webhook disabled."
    return await _changed(request, body, site, webhooks, deliveries, id, message)


@page.post("/operator/webhooks/{id}/deliveries/{delivery}/retry", access=ADMIN)
async def retry_delivery(
    request: Request,
    body: bytes,
    site: PageResponses,
    webhooks: Webhooks,
    deliveries: Deliveries,
    id: WebhookId,
    delivery: DeliveryId,
) -> Response[str]:
    """Send an event again now."""
    message = "It is sent again now."
    try:
        await deliveries.retry(id, delivery)
    except (Conflict, Gone) as error:
        message = error.detail
    return await _changed(request, body, site, webhooks, deliveries, id, message)


@page.get("/operator/webhooks/{id}/rotate", access=ADMIN)
async def confirm_rotation(request: Request, site: PageResponses, webhooks: Webhooks, id: WebhookId) -> Response[str]:
    """Show what another secret means, before it is made."""
    webhook = await webhooks.get(id)
    return await confirmation(
        request,
        site,
        TAB,
        title="Replace the secret?",
        effects=[
            f"Requests to {webhook.url} are signed with a new secret, which is shown once.",
            "For 24 hours they are signed with the present secret too. Then a receiver that does not know the new one "
            "refuses them.",
        ],
        button="Replace the secret",
        back=f"{PATH}/{id}",
    )


@page.post("/operator/webhooks/{id}/rotate", access=ADMIN)
async def rotate_secret(
    request: Request, body: bytes, site: PageResponses, webhooks: Webhooks, deliveries: Deliveries, id: WebhookId
) -> Response[str]:
    """Replace the secret and show the new one this once. The same form replaces it once."""
    rotated = await webhooks.rotate(id, site.idempotency_key(request, body))
    return await _webhook_page(request, site, webhooks, deliveries, id, secret=rotated.secret, rotated=True)


@page.get("/operator/webhooks/{id}/remove", access=ADMIN)
async def confirm_removal(request: Request, site: PageResponses, webhooks: Webhooks, id: WebhookId) -> Response[str]:
    """Show what a removal does, before it is done."""
    webhook = await webhooks.get(id)
    return await confirmation(
        request,
        site,
        TAB,
        title="Remove the webhook?",
        effects=[
            f"{webhook.url} receives nothing any more. Events that wait for it ({webhook.waiting}) are not sent.",
            "Its secret and its list of deliveries are deleted. This cannot be undone.",
        ],
        button="Remove the webhook",
        back=f"{PATH}/{id}",
    )


@page.post("/operator/webhooks/{id}/remove", access=ADMIN)
async def remove_webhook(
    request: Request, body: bytes, site: PageResponses, webhooks: Webhooks, id: WebhookId
) -> Response[str]:
    """Remove a webhook."""
    visitor = await site.visitors.from_request(request)
    with suppress(NoWebhook):  # removed by an earlier click
        await webhooks.remove(id)
    return Response(status=303, headers=[*visitor.cookie, ("location", PATH)])
