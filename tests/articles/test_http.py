"""The HTTP routes of articles, through the real application, with valid and invalid requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from plaza.app import running
from plaza.articles.keys import ARTICLE_GROUPS, ARTICLE_UP, ARTICLES_LAST
from plaza.core.clock import ManualClock
from plaza.core.keyspace import Layout, use_layout
from plaza.core.settings import Settings
from tests.articles.conftest import bearer
from tests.http_servers import client_of
from tests.servers import Cluster, Server

NEW = {"title": "A title", "link": "https://example.com/a"}


ANA, BEN, ADMIN = bearer("ana"), bearer("ben"), bearer("root", "admin")


def problem(answer: httpx.Response) -> tuple[int, str, Any]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    body = answer.json()
    return answer.status_code, body["code"], body.get("field")


async def test_an_article_is_posted_voted_on_read_and_deleted(http: httpx.AsyncClient, clock: ManualClock) -> None:
    posted = await http.post("/articles", json={**NEW, "groups": ["news"]}, headers=ANA)
    assert posted.status_code == 201
    time = clock.now_s()
    assert posted.json() == {
        "id": 1,
        "title": "A title",
        "link": "https://example.com/a",
        "author": "user:ana",
        "time": time,
        "votes": 1,
        "score": time + 432,
        "groups": ["news"],
        "vote": "up",
        "commentsCount": 0,
    }
    voted = await http.put("/articles/1/vote", json={"direction": "down"}, headers=BEN)
    assert (voted.status_code, voted.json()) == (200, {"id": 1, "votes": 0, "score": time, "vote": "down"})
    read = await http.get("/articles/1", headers=BEN)
    assert (read.json()["votes"], read.json()["vote"]) == (0, "down")
    assert (await http.get("/articles/1")).json()["vote"] is None
    back = await http.delete("/articles/1/vote", headers=BEN)
    assert back.json() == {"id": 1, "votes": 1, "score": time + 432, "vote": None}
    assert (await http.delete("/articles/1", headers=BEN)).status_code == 403
    deleted = await http.delete("/articles/1", headers=ANA)
    assert (deleted.status_code, deleted.json()) == (200, {"id": 1, "deleted": True})
    assert (await http.get("/articles/1")).status_code == 404


async def test_groups_over_http(http: httpx.AsyncClient) -> None:
    await http.post("/articles", json=NEW, headers=ANA)
    await http.put("/articles/1/vote", json={"direction": "down"}, headers=BEN)
    put = await http.put("/articles/1/groups/news", headers=ANA)
    assert (put.status_code, put.json()) == (200, {"id": 1, "groups": ["news"]})
    assert (await http.put("/articles/1/groups/go", json={}, headers=ADMIN)).json()["groups"] == ["go", "news"]
    groups = (await http.get("/groups")).json()
    assert groups == {
        "groups": [{"id": "news", "name": "news", "size": 1}, {"id": "go", "name": "go", "size": 1}],
        "pagination": {"limit": 20, "count": 2, "next_cursor": None},
    }
    for order in ("score", "time", "hot", "best", "top", "controversial"):
        page = (await http.get(f"/groups/news/articles?order={order}")).json()
        assert [article["id"] for article in page["articles"]] == [1]
    deleted = await http.delete("/articles/1/groups/news", headers=ANA)
    assert (deleted.status_code, deleted.json()) == (200, {"id": 1, "groups": ["go"]})
    assert (await http.get("/groups/news/articles")).json()["articles"] == []


async def test_pages_over_http(http: httpx.AsyncClient) -> None:
    for i in range(30):
        await http.post("/articles", json={**NEW, "link": f"https://example.com/{i}"}, headers=ANA)
        await http.put(f"/articles/{i + 1}/vote", json={"direction": "down"}, headers=BEN)
    for order in ("score", "time", "hot", "best", "top", "controversial"):
        first = (await http.get(f"/articles?order={order}")).json()
        assert (len(first["articles"]), first["pagination"]["limit"]) == (25, 25)
        cursor = first["pagination"]["next_cursor"]
        second = (await http.get("/articles", params={"order": order, "cursor": cursor})).json()
        assert (second["pagination"]["count"], second["pagination"]["next_cursor"]) == (5, None)
    assert (await http.get("/articles")).json() == (await http.get("/articles?order=score")).json()


async def test_the_same_link_again_is_409_with_the_first_articles_id(http: httpx.AsyncClient) -> None:
    await http.post("/articles", json=NEW, headers=ANA)
    again = await http.post("/articles", json={**NEW, "title": "Another"}, headers=BEN)
    assert problem(again) == (409, "duplicate_link", None)
    assert again.json()["id"] == 1


async def test_a_repeated_idempotency_key_returns_the_first_response(http: httpx.AsyncClient) -> None:
    headers = {**ANA, "idempotency-key": "one"}
    first = await http.post("/articles", json=NEW, headers=headers)
    again = await http.post("/articles", json=NEW, headers=headers)
    assert (again.status_code, again.json()) == (201, first.json())
    other = await http.post("/articles", json={**NEW, "title": "Other"}, headers=headers)
    assert other.status_code == 422


async def test_voting_after_the_window_is_409(http: httpx.AsyncClient, clock: ManualClock) -> None:
    await http.post("/articles", json=NEW, headers=ANA)
    clock.advance(days=7)
    answer = await http.put("/articles/1/vote", json={"direction": "up"}, headers=BEN)
    assert problem(answer) == (409, "voting_closed", None)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"link": NEW["link"]}, "title"),
        ({**NEW, "title": 5}, "title"),
        ({**NEW, "title": " "}, "title"),
        ({**NEW, "title": "x" * 301}, "title"),
        ({**NEW, "link": "ftp://example.com"}, "link"),
        ({**NEW, "link": "example.com"}, "link"),
        ({**NEW, "votes": 1000}, "votes"),
        ({**NEW, "groups": ["odd name"]}, "groups[0]"),
        ({**NEW, "groups": ["a{b}"]}, "groups[0]"),
        ({**NEW, "groups": ["a:b"]}, "groups[0]"),
        ({**NEW, "groups": ["a,b"]}, "groups[0]"),
        ({**NEW, "groups": ["news\n"]}, "groups[0]"),
        ({**NEW, "groups": [f"g{i}" for i in range(21)]}, "groups"),
    ],
)
async def test_an_invalid_article_is_422_with_the_field_and_takes_no_id(
    http: httpx.AsyncClient, redis_client: Any, body: dict[str, Any], field: str
) -> None:
    answer = await http.post("/articles", json=body, headers=ANA)
    assert problem(answer) == (422, "invalid", field)
    assert await redis_client.exists(ARTICLES_LAST()) == 0


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/articles?order=sideways", "order"),
        ("/articles?limit=0", "limit"),
        ("/articles?limit=1000", "limit"),
        ("/articles?offset=1001", "offset"),
        ("/articles?cursor=nonsense", "cursor"),
        ("/articles?page=2", "page"),
        ("/articles/0", "id"),
        ("/articles/abc", "id"),
        ("/articles/99999999999999999999", "id"),
        ("/groups?limit=0", "limit"),
        ("/groups/odd%7Dname/articles", "name"),
        ("/groups/a%7Bb%7D/articles", "name"),
        ("/groups/a%7Bb/articles", "name"),
        (f"/groups/{'x' * 201}/articles", "name"),
        ("/groups/news/articles?order=x", "order"),
        ("/groups/news/articles?limit=1000", "limit"),
    ],
)
async def test_an_invalid_query_is_422_with_the_field(http: httpx.AsyncClient, path: str, field: str) -> None:
    assert problem(await http.get(path)) == (422, "invalid", field)


async def test_an_invalid_vote_or_group_is_422(http: httpx.AsyncClient, redis_client: Any) -> None:
    await http.post("/articles", json=NEW, headers=ANA)
    for body, field in [
        ({"direction": "sideways"}, "direction"),
        ({}, "direction"),
        ({"direction": None}, "direction"),
    ]:
        assert problem(await http.put("/articles/1/vote", json=body, headers=BEN)) == (422, "invalid", field)
    assert problem(await http.put("/articles/1/groups/No%21", headers=ANA)) == (422, "invalid", "name")
    assert await redis_client.smembers(ARTICLE_UP(1)) == {"user:ana"}
    assert await redis_client.exists(ARTICLE_GROUPS(1)) == 0


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/articles", NEW),
        ("DELETE", "/articles/1", None),
        ("PUT", "/articles/1/vote", {"direction": "up"}),
        ("DELETE", "/articles/1/vote", None),
        ("PUT", "/articles/1/groups/news", None),
        ("DELETE", "/articles/1/groups/news", None),
    ],
)
async def test_writing_without_credentials_is_401_and_on_a_missing_article_404(
    http: httpx.AsyncClient, method: str, path: str, body: Any
) -> None:
    assert problem(await http.request(method, path, json=body))[:2] == (401, "unauthenticated")
    if path != "/articles":
        assert problem(await http.request(method, path, json=body, headers=ANA))[:2] == (404, "not_found")


async def test_only_the_author_or_an_admin_can_change_an_article(http: httpx.AsyncClient) -> None:
    await http.post("/articles", json=NEW, headers=ANA)
    assert problem(await http.put("/articles/1/groups/news", headers=BEN))[:2] == (403, "forbidden")
    assert problem(await http.delete("/articles/1/groups/news", headers=BEN))[:2] == (403, "forbidden")
    assert problem(await http.delete("/articles/1", headers=BEN))[:2] == (403, "forbidden")
    assert (await http.delete("/articles/1", headers={"x-api-key": "k" * 32})).status_code == 200


async def test_an_api_key_cannot_act_as_a_user(http: httpx.AsyncClient) -> None:
    key = {"x-api-key": "k" * 32}
    assert problem(await http.post("/articles", json=NEW, headers=key))[:2] == (403, "forbidden")
    await http.post("/articles", json=NEW, headers=ANA)
    assert problem(await http.put("/articles/1/vote", json={"direction": "up"}, headers=key))[0] == 403
    assert (await http.get("/articles/1", headers=key)).json()["vote"] is None


async def test_unicode_titles_are_returned_unchanged(http: httpx.AsyncClient) -> None:
    title = 'Ünïcödé 🐍 "quotes" <b> & 100 %'
    answer = await http.post("/articles", json={**NEW, "title": title}, headers=ANA)
    assert answer.status_code == 201, answer.text
    assert (await http.get("/articles/1")).json()["title"] == title
    raw = b'{"title": "half \\ud800", "link": "https://example.com/half"}'
    assert (await http.post("/articles", content=raw, headers=ANA)).status_code in (400, 422)


async def test_the_openapi_document_has_every_route(http: httpx.AsyncClient) -> None:
    paths = (await http.get("/openapi.json")).json()["paths"]
    assert set(paths["/articles"]) >= {"get", "post"}
    assert set(paths["/articles/{id}"]) >= {"get", "delete"}
    assert set(paths["/articles/{id}/vote"]) >= {"put", "delete"}
    assert set(paths["/articles/{id}/groups/{name}"]) >= {"put", "delete"}
    assert "/groups" in paths
    assert "/groups/{name}/articles" in paths


async def test_the_complete_application_serves_articles(place: Server | Cluster, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, valkey_url=place.url, rate_limits=False)
    async with running(settings) as plaza, client_of(plaza.app) as client:
        headers = {"authorization": f"Bearer {plaza.core.auth.issue('ana', 'user')}"}
        posted = await client.post("/articles", json={**NEW, "groups": ["news"]}, headers=headers)
        assert (posted.status_code, posted.json()["id"]) == (201, 1)
        page = (await client.get("/groups/news/articles", headers=headers)).json()
        assert page["articles"] == [posted.json()]
    use_layout(Layout.PLAIN)
