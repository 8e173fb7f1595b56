"""The operators' webhooks pages over HTTP: every form, with the secret shown once."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from standardwebhooks import Webhook as Verifier

from plaza.app import Plaza, running
from plaza.core.auth import API
from plaza.core.event_streams import stream_of
from plaza.core.settings import Settings
from plaza.social.users import Users
from plaza.webhooks.deliveries import Deliveries
from plaza.webhooks.endpoints import Webhooks
from plaza.webhooks.model import WebhookChange
from tests.databases import with_tables
from tests.pages.conftest import PageClient
from tests.servers import Server
from tests.waiting import eventually
from tests.webhooks.conftest import running_worker
from tests.webhooks.receiver import Receiver, answer, receiving

LIST = "/app/operator/webhooks"


@pytest.fixture
async def plaza(server: Server, tmp_path: Path) -> AsyncIterator[Plaza]:
    settings = Settings(data_dir=with_tables(tmp_path), valkey_url=server.url, rate_limits=False, webhooks_private=True)
    async with running(settings) as plaza:
        yield plaza


@pytest.fixture
async def admin(plaza: Plaza, ana: PageClient) -> PageClient:
    await plaza.get(Users).set_role(API, "ana", "admin")
    return ana


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as receiver:
        yield receiver


async def add(admin: PageClient, url: str, **fields: str) -> httpx.Response:
    return await admin.submit(LIST, page=LIST, url=url, **{"types": "*", **fields})


async def test_an_operator_adds_tests_switches_rotates_and_removes_a_webhook(
    plaza: Plaza, admin: PageClient, receiver: Receiver
) -> None:
    fields = await admin.hidden_fields(LIST)
    form = {**fields, "url": receiver.url, "types": "post.*, user.followed", "description": "<b>Billing</b>"}
    created = await admin.post(LIST, data=form)
    again = await admin.post(LIST, data=form)  # a reload of the page
    (webhook,) = await plaza.get(Webhooks).list_all()
    assert (webhook.types, webhook.created_by) == (["post.*", "user.followed"], "ana")
    found = re.search(r"whsec_[\w+/=]+", created.text)
    assert found is not None
    secret = found[0]
    assert secret in again.text
    assert "&lt;b&gt;Billing" in created.text
    path = f"{LIST}/{webhook.id}"
    assert secret not in (await admin.get(path)).text
    assert "Billing" in (await admin.get(LIST)).text
    assert (await admin.submit(f"{path}/test", page=path)).headers["location"] == path
    assert len(receiver.requests) == 1
    assert "webhook.test" in (await admin.get(path)).text
    asked = (await admin.get(f"{path}/disable")).text
    assert "What happens until then is never sent." in asked
    assert (await plaza.get(Webhooks).get(webhook.id)).enabled, "it only asked"
    await admin.submit(f"{path}/switch", page=f"{path}/disable")
    for shown in (path, "/app/operator/health"):
        assert "Disabled by an operator." in (await admin.get(shown)).text
    await admin.submit(f"{path}/switch", page=path, on="1")
    assert (await plaza.get(Webhooks).get(webhook.id)).enabled
    assert "disabled." not in (await admin.get("/app/operator/health")).text
    rotation = await admin.hidden_fields(f"{path}/rotate")
    secrets = [
        re.findall(r"whsec_[\w+/=]+", (await admin.post(f"{path}/rotate", data=rotation)).text) for _ in range(2)
    ]
    assert secrets[0] == secrets[1] != [secret], "a second click does not replace the new secret"
    await plaza.get(Deliveries).test(webhook.id)
    sent = receiver.requests[-1]
    for known in (secret, *secrets[0]):
        Verifier(known).verify(sent.body, sent.headers)
    for _ in range(2):
        assert (await admin.submit(f"{path}/remove", page=LIST)).headers["location"] == LIST
    assert (await admin.get(path)).status_code == 404
    assert await plaza.get(Webhooks).list_all() == []


async def test_a_refused_form_says_why_and_keeps_what_was_typed(admin: PageClient) -> None:
    for field, given, problem in (
        ("url", "ftp://example.org/", "Invalid URL."),
        ("types", "nonsense", "Invalid event type."),
        ("description", "x" * 201, "Description must have at most 200 characters."),
    ):
        form = {"url": "https://example.org/hook", "types": "post.*", field: given}
        response = await add(admin, **form)
        assert response.status_code == 422, field
        assert problem in response.text
        assert f'value="{given}"' in response.text


async def test_an_operator_edits_a_webhook(plaza: Plaza, admin: PageClient) -> None:
    await add(admin, "https://example.org/old", types="post.*", description="Old")
    (webhook,) = await plaza.get(Webhooks).list_all()
    path = f"{LIST}/{webhook.id}"
    assert 'value="https://example.org/old"' in (await admin.get(path)).text
    form = {"url": "https://example.org/new", "types": "order.*, user.followed", "description": ""}
    assert (await admin.submit(path, page=path, **form, include_imports="1")).headers["location"] == path
    changed = await plaza.get(Webhooks).get(webhook.id)
    assert (changed.url, changed.types) == ("https://example.org/new", ["order.*", "user.followed"])
    assert (changed.description, changed.include_imports, changed.enabled) == ("", True, True)
    for field, given, problem in (
        ("url", "ftp://x.org/", "Invalid URL."),
        ("types", "nonsense", "Invalid event type."),
    ):
        refused = await admin.submit(path, page=path, **{**form, field: given})
        assert (refused.status_code, problem in refused.text) == (422, True), field
        assert f'value="{given}"' in refused.text
    late = {**await admin.hidden_fields(path, path), **form, "types": "order.* user.followed", "description": "Billing"}
    await plaza.get(Webhooks).change(webhook.id, WebhookChange(url="https://example.org/newer", types=["*"]))
    refused = await admin.post(path, data={**late, "include_imports": "1", "description": "x" * 201})
    assert 'value="https://example.org/newer"' in refused.text, "what another operator has changed is shown"
    await admin.post(path, data={**late, "include_imports": "1"})
    changed = await plaza.get(Webhooks).get(webhook.id)
    assert (changed.url, changed.types) == ("https://example.org/newer", ["*"]), "only what was edited is changed"
    assert (changed.description, changed.include_imports) == ("Billing", True)
    await admin.submit(path, page=path, **form)
    assert not (await plaza.get(Webhooks).get(webhook.id)).include_imports
    assert (await admin.submit(f"{LIST}/{'0' * 16}", page=path, **form)).status_code == 404


async def test_a_failed_delivery_is_retried_with_a_button(plaza: Plaza, admin: PageClient, receiver: Receiver) -> None:
    receiver.respond = answer(500)
    await add(admin, receiver.url)
    (webhook,) = await plaza.get(Webhooks).list_all()
    path = f"{LIST}/{webhook.id}"
    async with running_worker(plaza):
        entry = {"type": "post.liked", "subject": "1", "data": "{}"}
        words = [word for pair in entry.items() for word in pair]
        await plaza.core.valkey.call("XADD", stream_of("social", "1").key, "*", *words)

        async def button() -> re.Match[str] | None:
            return re.search(rf'formaction="({path}/deliveries/[^"]+)"[^>]*>Retry now', (await admin.get(path)).text)

        found = await eventually(button)
        assert "HTTP 500" in (await admin.get(path)).text
        receiver.respond = answer(200)
        await admin.submit(found[1], page=path)
        await eventually(lambda: len(receiver.requests) == 2)

        async def sent_again() -> bool:
            return "Send again" in (await admin.get(path)).text

        await eventually(sent_again)
