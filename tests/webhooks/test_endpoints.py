"""Endpoints: created, listed, changed, tested and removed by admins. Their secrets are shown once."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from standardwebhooks import Webhook as Verifier
from standardwebhooks import WebhookVerificationError

from plaza.app import Plaza
from plaza.keyspace.audit import REPAIR, Audits
from plaza.webhooks.endpoints import Webhooks
from plaza.webhooks.keys import WEBHOOK, WEBHOOK_ATTEMPTS, WEBHOOKS
from plaza.webhooks.model import MAX_WEBHOOKS, ROTATION_MS, NewWebhook
from plaza.webhooks.personal_data import WebhooksPersonalData
from tests.webhooks.conftest import WebhookAdmin
from tests.webhooks.receiver import Receiver, answer

pytestmark = pytest.mark.usefixtures("plaza")
URL = "https://example.org/hook"


async def test_an_endpoint_is_created_listed_changed_and_removed(admin: WebhookAdmin) -> None:
    created = await admin.create(URL, "post.*", "order.placed", description="Billing")
    assert created["secret"].startswith("whsec_")
    shown = {name: value for name, value in created.items() if name != "secret"}
    assert await admin.call("GET", f"/{created['id']}") == shown
    assert await admin.call("GET", "") == {"webhooks": [shown]}
    changed = await admin.call("PATCH", f"/{created['id']}", types=["*"], include_imports=True)
    assert changed == {**shown, "types": ["*"], "include_imports": True}
    await admin.call("DELETE", f"/{created['id']}", 204)
    await admin.call("GET", f"/{created['id']}", 404)
    assert await admin.call("GET", "") == {"webhooks": []}


async def test_a_removed_endpoint_leaves_no_key(admin: WebhookAdmin, receiver: Receiver, redis_client: Any) -> None:
    created = await admin.create(receiver.url)
    await admin.call("POST", f"/{created['id']}/test")
    await admin.call("DELETE", f"/{created['id']}", 204)
    assert [name async for name in redis_client.scan_iter(match="webhook*")] == []


async def test_disabling_and_enabling_is_shown(admin: WebhookAdmin) -> None:
    id = (await admin.create(URL))["id"]
    disabled = await admin.call("PATCH", f"/{id}", enabled=False)
    assert (disabled["enabled"], disabled["disabled_reason"]) == (False, "Disabled by an operator.")
    enabled = await admin.call("PATCH", f"/{id}", enabled=True)
    assert (enabled["enabled"], enabled["disabled_at"], enabled["disabled_reason"]) == (True, None, None)


BAD_FIELDS: list[tuple[str, Any]] = [
    ("url", "ftp://example.org"),
    ("url", "https://"),
    ("url", "https://user:pass@example.org/"),
    ("url", "https://user@example.org/"),
    ("url", "https://example.org/#part"),
    ("url", "https://exämple.org/"),
    ("url", "https://example.org/a b"),
    ("url", "https://example.org:99999/"),
    ("url", "https://[::1"),
    ("url", "https://example.org/" + "x" * 2_000),
    ("types", []),
    ("types", ["post"]),
    ("types", ["post.*.x"]),
    ("types", ["*"] * 51),
    ("types", ["*", "post.liekd"]),
    ("types", ["psot.*"]),
    ("description", "a\nb"),
    ("description", "x" * 201),
    ("include_imports", 1),
    ("unknown", 1),
]


async def test_a_bad_field_is_named_and_changes_nothing(admin: WebhookAdmin) -> None:
    for field, value in BAD_FIELDS:
        problem = await admin.call("POST", "", 422, **{"url": URL, "types": ["*"], field: value})
        assert problem["field"].partition("[")[0] == field, value
    assert await admin.call("GET", "") == {"webhooks": []}


async def test_the_same_idempotency_key_creates_one_endpoint(admin: WebhookAdmin, http: httpx.AsyncClient) -> None:
    headers, body = {"idempotency-key": "one"}, {"url": URL, "types": ["*"]}
    first = await http.post("/webhooks", json=body, headers=headers)
    again = await http.post("/webhooks", json=body, headers=headers)
    assert (again.status_code, again.json()) == (201, first.json())
    other = await http.post("/webhooks", json={**body, "types": ["post.*"]}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    empty = await http.post("/webhooks", json=body, headers={"idempotency-key": ""})
    assert (empty.status_code, empty.json()["field"]) == (422, "Idempotency-Key")
    assert len((await admin.call("GET", ""))["webhooks"]) == 1


async def test_the_number_of_endpoints_is_limited(
    plaza: Plaza, admin: WebhookAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MAX_WEBHOOKS == 100
    monkeypatch.setattr("plaza.webhooks.endpoints.MAX_WEBHOOKS", 2)
    await admin.create(URL)
    await admin.create(URL)
    problem = await admin.call("POST", "", 409, url=URL, types=["*"])
    assert problem["code"] == "too_many_webhooks"


async def test_the_secret_is_stored_encrypted(admin: WebhookAdmin, redis_client: Any) -> None:
    created = await admin.create(URL)
    stored = await redis_client.hgetall(WEBHOOK(created["id"]))
    assert created["secret"].removeprefix("whsec_") not in str(stored)
    assert stored["secret"].startswith("v1:")


async def test_a_test_event_verifies_with_the_standard_library(admin: WebhookAdmin, receiver: Receiver) -> None:
    created = await admin.create(receiver.url)
    result = await admin.call("POST", f"/{created['id']}/test")
    assert (result["delivered"], result["response_code"], result["error"]) == (True, 200, None)
    (request,) = receiver.requests
    event = Verifier(created["secret"]).verify(request.body, request.headers)
    assert (event["type"], event["specversion"]) == ("webhook.test", "1.0")
    assert request.headers["webhook-id"] == event["id"]
    with pytest.raises(WebhookVerificationError):
        Verifier(created["secret"]).verify(request.body + b" ", request.headers)


async def test_after_a_rotation_both_secrets_verify_for_a_day(
    plaza: Plaza, admin: WebhookAdmin, receiver: Receiver, redis_client: Any
) -> None:
    created = await admin.create(receiver.url)
    rotated = await admin.call("POST", f"/{created['id']}/rotate")
    assert rotated["secret"] != created["secret"]
    await admin.call("POST", f"/{created['id']}/test")
    # A day later.
    until = int(await redis_client.hget(WEBHOOK(created["id"]), "previous_until"))
    assert abs(until - plaza.core.clock.now_ms() - ROTATION_MS) < 3_600_000
    await redis_client.hset(WEBHOOK(created["id"]), "previous_until", 1)
    await admin.call("POST", f"/{created['id']}/test")
    during, after = receiver.requests
    Verifier(created["secret"]).verify(during.body, during.headers)
    Verifier(rotated["secret"]).verify(during.body, during.headers)
    Verifier(rotated["secret"]).verify(after.body, after.headers)
    with pytest.raises(WebhookVerificationError):
        Verifier(created["secret"]).verify(after.body, after.headers)


async def test_a_failed_test_is_shown_and_listed(admin: WebhookAdmin, receiver: Receiver) -> None:
    id = (await admin.create(receiver.url))["id"]
    receiver.respond = answer(500)
    result = await admin.call("POST", f"/{id}/test")
    assert (result["delivered"], result["response_code"], result["error"]) == (False, 500, "HTTP 500")
    (delivery,) = (await admin.call("GET", f"/{id}/deliveries"))["deliveries"]
    assert (delivery["status"], delivery["type"], delivery["attempts"]) == ("failed", "webhook.test", 1)


async def test_deliveries_are_paged_latest_first(admin: WebhookAdmin, receiver: Receiver) -> None:
    id = (await admin.create(receiver.url))["id"]
    for _ in range(3):
        await admin.call("POST", f"/{id}/test")
    sent = [event["id"] for event in receiver.events()]
    first = await admin.call("GET", f"/{id}/deliveries?limit=2")
    await admin.call("POST", f"/{id}/test")
    cursor = first["pagination"]["next_cursor"]
    second = await admin.call("GET", f"/{id}/deliveries?limit=2&cursor={cursor}")
    assert [each["event"] for each in first["deliveries"] + second["deliveries"]] == sent[::-1]
    assert second["pagination"]["next_cursor"] is None
    await admin.call("GET", f"/{'0' * 16}/deliveries", 404)


async def test_the_creators_name_is_exported_renamed_and_deleted(plaza: Plaza, redis_client: Any) -> None:
    webhooks = plaza.get(Webhooks)
    personal = WebhooksPersonalData(plaza.core.functions, webhooks)
    created = await webhooks.create("ana", NewWebhook(URL, ["*"]))
    assert (await personal.export("ana"))["webhooks"][0]["id"] == created.id
    await personal.rename("ana", "anna")
    assert (await personal.export("ana"))["webhooks"] == []
    assert (await webhooks.get(created.id)).created_by == "anna"
    await personal.delete("anna")
    assert (await webhooks.get(created.id)).created_by is None
    assert "ann" not in str(await redis_client.hgetall(WEBHOOK(created.id)))


async def test_admin_actions_are_in_the_security_log(admin: WebhookAdmin, http: httpx.AsyncClient) -> None:
    id = (await admin.create(URL))["id"]
    await admin.call("POST", f"/{id}/rotate")
    entries = (await http.get("/admin/log")).json()["actions"]
    assert [entry["action"] for entry in entries] == ["POST /webhooks/{id}/rotate", "POST /webhooks"]
    assert entries[0]["subject"] == id


async def test_the_audit_repairs_the_index_and_leftovers(plaza: Plaza, admin: WebhookAdmin, redis_client: Any) -> None:
    id = (await admin.create(URL))["id"]
    assert (await plaza.get(Audits).run()).groups == []
    await redis_client.hset(WEBHOOKS(), mapping={id: 99, "0" * 16: 1})
    await redis_client.zadd(WEBHOOK_ATTEMPTS("1" * 16), {"1-1": 1})
    await redis_client.zadd(WEBHOOK_ATTEMPTS(id), {"2-2": 1})
    report = await plaza.get(Audits).run()
    assert {(group.family, group.rule) for group in report.groups} == {
        ("webhooks", "reference"),
        ("webhook:<webhook>", "index"),
        ("webhook:<webhook>:attempts", "orphan"),
        ("webhook:<webhook>:attempts", "order"),
    }
    assert (await plaza.get(Audits).run(REPAIR)).left == []
    assert list(await redis_client.hgetall(WEBHOOKS())) == [id]
    assert (await admin.call("GET", f"/{id}"))["url"] == URL
