"""The jobs of webhooks: a worker delivers events, old records are removed, and figures go to the metrics."""

from __future__ import annotations

from plaza.core import metrics
from plaza.core.leases import Lease
from plaza.core.timers import Timer
from plaza.webhooks.deliveries import Deliveries
from plaza.webhooks.endpoints import Webhooks

EXPIRE_SECONDS = 3_600
FIGURES_SECONDS = 30


def timers(webhooks: Webhooks, deliveries: Deliveries) -> list[Timer]:
    async def expire(_: Lease) -> str:
        return f"{await deliveries.expire()} old deliveries removed"

    async def figures(_: Lease) -> str:
        found = await webhooks.list_all()
        states = [webhook.state for webhook in found]
        for state in ("working", "failing", "disabled"):
            metrics.WEBHOOK_ENDPOINTS.labels(state).set(states.count(state))
        metrics.WEBHOOK_WAITING.set(sum(webhook.waiting for webhook in found))
        return f"{len(found)} webhooks"

    return [
        Timer("webhooks.expire", EXPIRE_SECONDS, expire),
        Timer("webhooks.figures", FIGURES_SECONDS, figures),
    ]
