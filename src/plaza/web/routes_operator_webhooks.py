"""The operators' webhooks pages: endpoints with their state, their last deliveries, and the forms to manage them."""

from __future__ import annotations

from typing import Any, Final

from plaza.core.errors import Conflict, Gone, Invalid
from plaza.core.http.access import ADMIN
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.paging import Page
from plaza.web import forms
from plaza.web.operator_navigation import SECTION, confirmation, operator_tabs
from plaza.web.page_responses import PageResponses
from plaza.web.page_routes import PageRoutes
from plaza.web.text_html import next_page_link
from plaza.webhooks.deliveries import Deliveries
from plaza.webhooks.endpoints import Webhooks
from plaza.webhooks.model import DeliveryId, EndpointResponse, NewWebhook, WebhookChange, WebhookId

page = PageRoutes()

PATH: Final = "/app/operator/webhooks"
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
    return site.page(
        request,
        visitor,
        "operator-webhooks.html",
        section=SECTION,
        status=status,
        return_path=PATH,
        tabs=operator_tabs("Webhooks"),
        webhooks=await webhooks.list_all(),
        **{"problem": "", "field": "", "values": EMPTY_FORM, **context},
    )


@page.post("/operator/webhooks", access=ADMIN, logged_fields=("types",))
async def add_webhook(
    request: Request, body: bytes, site: PageResponses, webhooks: Webhooks, deliveries: Deliveries
) -> Response[str]:
    """Add a webhook and show its secret this once."""
    visitor = await site.visitors.from_request(request)
    values = forms.parse_form(body)
    types = values.get("types", "").replace(",", " ").split()
    try:
        imports = values.get("include_imports") == "1"
        new = forms.read_form(body, NewWebhook, types=types, include_imports=imports)
        created = await webhooks.create(visitor.name, new, site.idempotency_key(request, body))
    except (Conflict, Invalid) as error:
        context = {"problem": error.detail, "field": str(error.extra.get("field", "")), "values": EMPTY_FORM | values}
        return await _list_page(request, site, webhooks, status=error.status, **context)
    return await _webhook_page(request, site, webhooks, deliveries, created.id, secret=created.secret)


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
) -> Response[str]:
    visitor = await site.visitors.from_request(request)
    context = await _details(webhooks, deliveries, id, cursor)
    return site.page(
        request,
        visitor,
        "operator-webhook.html",
        section=SECTION,
        return_path=f"{PATH}/{id}",
        tabs=operator_tabs("Webhooks"),
        secret=secret,
        rotated=rotated,
        **context,
    )


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


@page.post("/operator/webhooks/{id}/rotate", access=ADMIN)
async def rotate_secret(
    request: Request, body: bytes, site: PageResponses, webhooks: Webhooks, deliveries: Deliveries, id: WebhookId
) -> Response[str]:
    """Replace the secret and show the new one this once."""
    rotated = await webhooks.rotate(id)
    return await _webhook_page(request, site, webhooks, deliveries, id, secret=rotated.secret, rotated=True)


@page.get("/operator/webhooks/{id}/remove", access=ADMIN)
async def confirm_removal(request: Request, site: PageResponses, webhooks: Webhooks, id: WebhookId) -> Response[str]:
    """Show what a removal does, before it is done."""
    visitor = await site.visitors.from_request(request)
    webhook = await webhooks.get(id)
    return confirmation(
        request,
        site,
        visitor,
        "Webhooks",
        title="Remove the webhook?",
        effects=[
            f"{webhook.url} receives nothing any more. Events that wait for it ({webhook.waiting}) are not sent.",
            "Its secret and its list of deliveries are deleted. This cannot be undone.",
        ],
        action=f"{PATH}/{id}/remove",
        button="Remove the webhook",
        back=f"{PATH}/{id}",
    )


@page.post("/operator/webhooks/{id}/remove", access=ADMIN)
async def remove_webhook(
    request: Request, body: bytes, site: PageResponses, webhooks: Webhooks, id: WebhookId
) -> Response[str]:
    """Remove a webhook."""
    visitor = await site.visitors.from_request(request)
    await webhooks.remove(id)
    return Response(status=303, headers=[*visitor.cookie, ("location", PATH)])
