"""A person's traces can be handed out whole, and removed whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plaza.app import running
from plaza.articles import personal_data as people_module
from plaza.articles.keys import ARTICLE_DOWN, ARTICLE_UP, ARTICLES_BY_SCORE, PERSON_VOTES
from plaza.articles.personal_data import People
from plaza.articles.service import Articles
from plaza.core.auth import Actor
from plaza.core.clock import ManualClock
from plaza.core.keyspace import Layout, use_layout
from plaza.core.settings import Settings
from tests.articles.conftest import Post, traces
from tests.http_servers import client_of
from tests.servers import Cluster, Server


@pytest.fixture
def people(articles: Articles, monkeypatch: pytest.MonkeyPatch) -> People:
    monkeypatch.setattr(people_module, "STEP", 3)
    return People(articles)


async def test_an_export_has_every_article_and_every_vote(
    articles: Articles, people: People, post: Post, ana: Actor, ben: Actor
) -> None:
    made = [await post(ana, "news") for _ in range(4)]
    other = await post(ben)
    await articles.vote(ana, other.id, "down")
    await articles.vote(ana, made[0].id, None)
    export = await people.export("ana")
    assert [article["id"] for article in export["articles"]] == [article.id for article in made]
    assert export["articles"][1]["title"] == "A title"
    assert {vote["article"]: vote["direction"] for vote in export["votes"]} == {
        other.id: "down",
        **{article.id: "up" for article in made[1:]},
    }
    assert await people.export("nobody") == {"articles": [], "votes": []}


async def test_a_forgotten_person_has_left_no_trace_and_scores_are_true(
    articles: Articles, people: People, post: Post, ana: Actor, ben: Actor, clock: ManualClock, redis_client: Any
) -> None:
    mine = [await post(ben) for _ in range(5)]
    for article in mine:
        await articles.vote(ana, article.id, "up")
    before = await traces(articles.valkey)
    for _ in range(4):
        theirs = await post(ana, "news")
        await articles.vote(ben, theirs.id, "up")
    clock.advance(days=30)  # voting has long ended
    await people.delete("ana")
    for article in mine:
        assert (await articles.read(ana, article.id)).votes == 1
    assert await traces(articles.valkey) == before - {PERSON_VOTES("ana")}
    assert await redis_client.zcard(PERSON_VOTES("ben")) == 5
    assert await people.export("ana") == {"articles": [], "votes": []}
    await people.delete("ana")


async def test_a_renamed_person_has_the_same_articles_and_votes(
    articles: Articles, people: People, post: Post, ana: Actor, ben: Actor, redis_client: Any
) -> None:
    mine = [await post(ana) for _ in range(4)]
    other = await post(ben)
    await articles.vote(ana, other.id, "down")
    await articles.vote(ana, mine[0].id, None)
    await articles.vote(ben, mine[1].id, "up")
    before = await people.export("ana")
    ranks = await redis_client.zrange(ARTICLES_BY_SCORE(), 0, -1, withscores=True)
    await people.rename("ana", "anna")
    after = await people.export("anna")
    assert [{**article, "author": "user:ana"} for article in after["articles"]] == before["articles"]
    assert {article["author"] for article in after["articles"]} == {"user:anna"}
    assert after["votes"] == before["votes"]
    assert await people.export("ana") == {"articles": [], "votes": []}
    assert await redis_client.zrange(ARTICLES_BY_SCORE(), 0, -1, withscores=True) == ranks
    assert await redis_client.smembers(ARTICLE_UP(mine[1].id)) == {"user:anna", "user:ben"}
    assert await redis_client.smembers(ARTICLE_DOWN(other.id)) == {"user:anna"}
    assert not any("{ana}" in name or ":ana:" in name for name in await traces(articles.valkey))
    await people.rename("ana", "anna")


async def test_where_both_names_have_voted_the_new_names_vote_stands(
    articles: Articles, people: People, post: Post, ana: Actor, ben: Actor, redis_client: Any
) -> None:
    article = await post(ben)
    await articles.vote(ana, article.id, "up")
    await articles.vote(Actor("anna", "user"), article.id, "down")
    await people.rename("ana", "anna")
    assert await redis_client.smembers(ARTICLE_UP(article.id)) == {"user:ben"}
    assert await redis_client.smembers(ARTICLE_DOWN(article.id)) == {"user:anna"}
    assert (await articles.read(None, article.id)).votes == 0
    assert (await people.export("anna"))["votes"] == [{"article": article.id, "direction": "down"}]


async def test_forgetting_ends_also_where_a_list_names_what_is_not_so(
    people: People, post: Post, redis_client: Any
) -> None:
    article = await post()
    await redis_client.zadd(PERSON_VOTES("cem"), {"article:92617": 1, f"article:{article.id}": 1})
    await people.delete("cem")
    assert await redis_client.exists(PERSON_VOTES("cem")) == 0


async def test_who_leaves_plaza_leaves_articles_too(
    place: Server | Cluster, articles: Articles, redis_client: Any, tmp_path: Path
) -> None:
    settings = Settings(data_dir=tmp_path, valkey_url=place.url, rate_limits=False)
    async with running(settings) as plaza, client_of(plaza.app) as client:
        body = {"username": "ana", "password": "correct horse battery"}
        token = (await client.post("/auth/register", json=body)).json()["access_token"]
        ana = {"authorization": f"Bearer {token}"}
        ben = {"authorization": f"Bearer {plaza.core.auth.issue('ben', 'user')}"}
        for who, link in ((ana, "https://example.com/a"), (ben, "https://example.com/b")):
            assert (await client.post("/articles", json={"title": "T", "link": link}, headers=who)).status_code == 201
        await client.put("/articles/2/vote", json={"direction": "up"}, headers=ana)
        export = (await client.get("/users/me/export", headers=ana)).json()
        assert [article["id"] for article in export["articles"]["articles"]] == [1]
        assert len(export["articles"]["votes"]) == 2
        assert (await client.delete("/users/me", headers=ana)).status_code == 200
        assert (await client.get("/articles/1")).status_code == 404
        assert (await client.get("/articles/2")).json()["votes"] == 1
    assert await redis_client.smembers(ARTICLE_UP(2)) == {"user:ben"}
    assert not any("ana" in name for name in await traces(articles.valkey) if name.startswith("articles:"))
    use_layout(Layout.PLAIN)
