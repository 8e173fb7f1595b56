"""Events over HTTP: server-sent events with filters and resume."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from plaza.app import Plaza
from plaza.core.auth import Actor
from plaza.core.event_streams import stream_of
from plaza.core.http import event_stream_sender
from plaza.social.engagements import Engagements
from plaza.social.inbound_sync import InboundSync
from plaza.social.model import NewPost
from plaza.social.posts import Posts
from tests.http_servers import serving
from tests.timeouts import TIME_LIMIT_SECONDS

ANA = Actor("ana", "user")


@pytest.fixture
async def client(plaza: Plaza) -> AsyncIterator[httpx.AsyncClient]:
    key = {"x-api-key": plaza.core.settings.secret("api_key")}
    async with (
        serving(plaza.app) as url,
        httpx.AsyncClient(base_url=url, headers=key, timeout=TIME_LIMIT_SECONDS) as client,
    ):
        await plaza.get(InboundSync).apply("user", [{"username": "ana"}])
        yield client


async def read(answer: httpx.Response, count: int) -> list[dict[str, Any]]:
    """Read so many events of an open stream, with their id for `Last-Event-ID`."""
    events: list[dict[str, Any]] = []
    position = ""
    async for line in answer.aiter_lines():
        if line.startswith("id: "):
            position = line[4:]
        if line.startswith("data: "):
            events.append({**json.loads(line[6:]), "position": position})
        if len(events) == count:
            break
    return events


async def test_events_are_streamed_as_cloud_events_and_resumed(plaza: Plaza, client: httpx.AsyncClient) -> None:
    posts, engagements = plaza.get(Posts), plaza.get(Engagements)
    async with client.stream("GET", "/events", params={"types": "post.*"}) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream"
        post = (await posts.create(ANA, NewPost("Hello"))).id
        await engagements.like(ANA, post)
        created, liked = await read(answer, 2)
    data = {"post": post, "author": "ana"}
    assert created["data"] == data
    assert liked["data"] == {**data, "username": "ana"}
    assert liked.keys() == {
        "specversion", "id", "source", "type", "subject", "time", "datacontenttype", "data", "position"
    }  # fmt: skip
    assert (liked["specversion"], liked["type"], liked["subject"]) == ("1.0", "post.liked", post)
    await engagements.unlike(ANA, post)
    headers = {"last-event-id": created["position"]}
    async with client.stream("GET", "/events", params={"subject": post}, headers=headers) as answer:
        seen = await read(answer, 2 if not plaza.core.valkey.clustered else 3)
    assert [event["type"] for event in seen][-2:] == ["post.liked", "post.unliked"]
    assert seen[-2] == liked


async def test_wrong_parameters_are_refused(plaza: Plaza, client: httpx.AsyncClient, redis_client: Any) -> None:
    for types in ("post.likd", "posts.*", "post*", ",".join(["post.liked"] * 51)):
        answer = await client.get("/events", params={"types": types})
        assert (answer.status_code, answer.json()["field"]) == (422, "types")
    answer = await client.get("/events", headers={"last-event-id": "yesterday"})
    assert (answer.status_code, answer.json()["field"]) == (422, "Last-Event-ID")
    key = stream_of("shop", "1").key
    for n in range(1, 101):
        await redis_client.xadd(key, {"type": "item.created"}, id=f"{n}-1")
    await redis_client.xtrim(key, maxlen=0)
    answer = await client.get("/events", headers={"last-event-id": "shop-5-1"})
    assert (answer.status_code, answer.json()["code"]) == (410, "events_trimmed")


async def test_a_stream_ends_to_check_access_again_and_its_client_misses_nothing(
    plaza: Plaza, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream_sender, "MAX_RESUMABLE_SECONDS", 0.0)
    monkeypatch.setattr(event_stream_sender, "KEEP_ALIVE_SECONDS", 0.0)  # so it is silent when it ends
    posts = plaza.get(Posts)
    await posts.create(ANA, NewPost("Before"))
    answer = await client.get("/events", params={"types": "order.placed,post.created"})  # until the server ends it
    ids = [line[4:] for line in answer.text.splitlines() if line.startswith("id: ")]
    assert "data" not in answer.text
    assert len(ids) == 2, "at the beginning and at the end"
    post = (await posts.create(ANA, NewPost("In between"))).id
    monkeypatch.undo()
    headers = {"last-event-id": ids[-1]}
    async with client.stream("GET", "/events", params={"subject": post}, headers=headers) as answer:
        (seen,) = await read(answer, 1)
    assert (seen["type"], seen["subject"]) == ("post.created", post)
