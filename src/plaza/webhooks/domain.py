"""The declaration of the `webhooks` domain."""

from __future__ import annotations

from plaza.core.domain import Core, Domain, Parts
from plaza.core.encryption import Encryption
from plaza.core.leases import Leases
from plaza.core.root_path import public_url
from plaza.webhooks import jobs
from plaza.webhooks.deliveries import Deliveries
from plaza.webhooks.delivery_queue import DeliveryQueue
from plaza.webhooks.dispatcher import WebhookDispatcher
from plaza.webhooks.endpoint_reader import EndpointReader
from plaza.webhooks.endpoints import Webhooks
from plaza.webhooks.http_client import WebhookClient
from plaza.webhooks.invariants import INVARIANTS
from plaza.webhooks.library import LIBRARY
from plaza.webhooks.personal_data import WebhooksPersonalData
from plaza.webhooks.routes import route

# After the death of the worker in charge, no webhook is delivered for this long.
LEASE_SECONDS = 15.0


def build(core: Core) -> Parts:
    settings = core.settings
    source = public_url(settings)
    reader = EndpointReader(core.valkey, Encryption(settings.data_keys()))
    client = WebhookClient(settings.webhooks_private)
    event_types = [each.type for types in core.event_types.values() for each in types]
    private = settings.webhooks_private
    webhooks = Webhooks(core.functions, reader, core.clock, event_types=event_types, allow_private=private)
    deliveries = Deliveries(core.functions, reader, client, core.clock, source)
    dispatcher = WebhookDispatcher(
        core.valkey,
        Leases(core.functions, LEASE_SECONDS),
        reader,
        DeliveryQueue(core.functions),
        client,
        core.clock,
        webhooks.disable,
        list(core.event_types),
        source,
    )
    return Parts(
        [webhooks, deliveries],
        personal_data=WebhooksPersonalData(core.functions, webhooks),
        timers=jobs.timers(webhooks, deliveries),
        worker_loops={"webhooks": dispatcher},
        encrypted=[reader.encrypted_fields()],
    )


DOMAIN = Domain(LIBRARY, [route], build, INVARIANTS, uses_all=True)
