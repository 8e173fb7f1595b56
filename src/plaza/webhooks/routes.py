"""The HTTP routes of webhooks."""

from __future__ import annotations

from plaza.core.auth import Actor
from plaza.core.http.access import ADMIN
from plaza.core.http.request import Request
from plaza.core.http.routes import Routes
from plaza.core.paging import Page
from plaza.webhooks.deliveries import Deliveries
from plaza.webhooks.endpoints import Webhooks
from plaza.webhooks.model import (
    DeliveryId,
    DeliveryPage,
    EndpointResponse,
    EventTrimmed,
    NewWebhook,
    NoDelivery,
    NoWebhook,
    RetriedDelivery,
    TooManyWebhooks,
    Webhook,
    WebhookChange,
    WebhookDisabled,
    WebhookId,
    WebhookList,
    WebhookWithSecret,
)

route = Routes("webhooks", about="Events as signed HTTP requests to other services.")


@route.post(
    "/webhooks",
    access=ADMIN,
    status=201,
    idempotent="by_handler",
    raises=[TooManyWebhooks],
    example={"url": "https://example.org/hook", "types": ["post.*", "order.placed"]},
)
async def create_webhook(actor: Actor, body: NewWebhook, request: Request, webhooks: Webhooks) -> WebhookWithSecret:
    """Create a webhook. The secret is shown this once."""
    return await webhooks.create(actor.name, body, request.headers.get("idempotency-key"))


@route.get("/webhooks", access=ADMIN)
async def list_webhooks(webhooks: Webhooks) -> WebhookList:
    """List webhooks, oldest first."""
    return WebhookList(await webhooks.list_all())


@route.get("/webhooks/{id}", access=ADMIN, raises=[NoWebhook])
async def get_webhook(id: WebhookId, webhooks: Webhooks) -> Webhook:
    """Read a webhook and its state."""
    return await webhooks.get(id)


@route.patch("/webhooks/{id}", access=ADMIN, raises=[NoWebhook], example={"types": ["post.created"], "enabled": True})
async def update_webhook(id: WebhookId, body: WebhookChange, webhooks: Webhooks) -> Webhook:
    """Change a webhook, disable it, or enable it again."""
    return await webhooks.change(id, body)


@route.delete("/webhooks/{id}", access=ADMIN, raises=[NoWebhook])
async def delete_webhook(id: WebhookId, webhooks: Webhooks) -> None:
    """Delete a webhook and the events that wait for it."""
    await webhooks.remove(id)


@route.post("/webhooks/{id}/rotate", access=ADMIN, raises=[NoWebhook])
async def replace_webhook_secret(id: WebhookId, webhooks: Webhooks) -> WebhookWithSecret:
    """Replace the secret, which is shown this once. For 24 hours requests are signed with the old one too."""
    return await webhooks.rotate(id)


@route.post("/webhooks/{id}/test", access=ADMIN, raises=[NoWebhook])
async def test_webhook(id: WebhookId, deliveries: Deliveries) -> EndpointResponse:
    """Send a test event and return the endpoint's response."""
    return await deliveries.test(id)


@route.get("/webhooks/{id}/deliveries", access=ADMIN, raises=[NoWebhook])
async def list_webhook_deliveries(id: WebhookId, page: Page, deliveries: Deliveries) -> DeliveryPage:
    """List the deliveries of the last 7 days, latest attempt first."""
    return await deliveries.page(id, page)


@route.post(
    "/webhooks/{id}/deliveries/{delivery}/retry",
    access=ADMIN,
    status=202,
    raises=[NoWebhook, NoDelivery, WebhookDisabled, EventTrimmed],
)
async def retry_webhook_delivery(id: WebhookId, delivery: DeliveryId, deliveries: Deliveries) -> RetriedDelivery:
    """Send an event again now. A delivery that has ended gets a new id."""
    return RetriedDelivery(await deliveries.retry(id, delivery))
