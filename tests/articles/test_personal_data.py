"""A user's articles and votes are exported, deleted and renamed completely."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plaza.app import running
from plaza.articles import personal_data as personal_data_module
from plaza.articles.comments import ArticleComments
from plaza.articles.keys import ARTICLE_DOWN, ARTICLE_UP, ARTICLES_BY_SCORE, USER_VOTES
from plaza.articles.personal_data import ArticlesPersonalData
from plaza.articles.service import Articles
from plaza.core.auth import Actor
from plaza.core.clock import ManualClock
from plaza.core.json_stream import collect
from plaza.core.keyspace import Layout, use_layout
from plaza.core.settings import Settings
from tests.articles.conftest import Post, remaining_keys
from tests.http_servers import client_of
from tests.servers import Cluster, Server


@pytest.fixture
def personal_data(articles: Articles, monkeypatch: pytest.MonkeyPatch) -> ArticlesPersonalData:
    monkeypatch.setattr(personal_data_module, "STEP", 3)
    return ArticlesPersonalData(articles, ArticleComments(articles, None))


async def test_an_export_has_every_article_and_every_vote(
    articles: Articles, personal_data: ArticlesPersonalData, post: Post, ana: Actor, ben: Actor
) -> None:
    made = [await post(ana, "news") for _ in range(4)]
    other = await post(ben)
    await articles.vote(ana, other.id, "down")
    await articles.vote(ana, made[0].id, None)
    export = await collect(await personal_data.export("ana"))
    assert [article["id"] for article in export["articles"]] == [article.id for article in made]
    assert export["articles"][1]["title"] == "A title"
    assert {vote["article"]: vote["direction"] for vote in export["votes"]} == {
        other.id: "down",
        **{article.id: "up" for article in made[1:]},
    }
    assert await collect(await personal_data.export("unknown")) == {"articles": [], "votes": [], "comments": []}


async def test_deleting_a_user_leaves_no_data_and_correct_scores(
    articles: Articles,
    personal_data: ArticlesPersonalData,
    post: Post,
    ana: Actor,
    ben: Actor,
    clock: ManualClock,
    redis_client: Any,
) -> None:
    mine = [await post(ben) for _ in range(5)]
    for article in mine:
        await articles.vote(ana, article.id, "up")
    before = await remaining_keys(articles.valkey)
    for _ in range(4):
        theirs = await post(ana, "news")
        await articles.vote(ben, theirs.id, "up")
    clock.advance(days=30)  # voting is closed
    await personal_data.delete("ana")
    for article in mine:
        assert (await articles.read(ana, article.id)).votes == 1
    assert await remaining_keys(articles.valkey) == before - {USER_VOTES("ana")}
    assert await redis_client.zcard(USER_VOTES("ben")) == 5
    assert await collect(await personal_data.export("ana")) == {"articles": [], "votes": [], "comments": []}
    await personal_data.delete("ana")


async def test_a_renamed_user_has_the_same_articles_and_votes(
    articles: Articles, personal_data: ArticlesPersonalData, post: Post, ana: Actor, ben: Actor, redis_client: Any
) -> None:
    mine = [await post(ana) for _ in range(4)]
    other = await post(ben)
    await articles.vote(ana, other.id, "down")
    await articles.vote(ana, mine[0].id, None)
    await articles.vote(ben, mine[1].id, "up")
    before = await collect(await personal_data.export("ana"))
    ranks = await redis_client.zrange(ARTICLES_BY_SCORE(), 0, -1, withscores=True)
    await personal_data.rename("ana", "anna")
    after = await collect(await personal_data.export("anna"))
    assert [{**article, "author": "user:ana"} for article in after["articles"]] == before["articles"]
    assert {article["author"] for article in after["articles"]} == {"user:anna"}
    assert after["votes"] == before["votes"]
    assert await collect(await personal_data.export("ana")) == {"articles": [], "votes": [], "comments": []}
    assert await redis_client.zrange(ARTICLES_BY_SCORE(), 0, -1, withscores=True) == ranks
    assert await redis_client.smembers(ARTICLE_UP(mine[1].id)) == {"user:anna", "user:ben"}
    assert await redis_client.smembers(ARTICLE_DOWN(other.id)) == {"user:anna"}
    assert not any("{ana}" in name or ":ana:" in name for name in await remaining_keys(articles.valkey))
    await personal_data.rename("ana", "anna")


async def test_if_both_names_have_voted_the_new_names_vote_stays(
    articles: Articles, personal_data: ArticlesPersonalData, post: Post, ana: Actor, ben: Actor, redis_client: Any
) -> None:
    article = await post(ben)
    await articles.vote(ana, article.id, "up")
    await articles.vote(Actor("anna", "user"), article.id, "down")
    await personal_data.rename("ana", "anna")
    assert await redis_client.smembers(ARTICLE_UP(article.id)) == {"user:ben"}
    assert await redis_client.smembers(ARTICLE_DOWN(article.id)) == {"user:anna"}
    assert (await articles.read(None, article.id)).votes == 0
    exported = await collect(await personal_data.export("anna"))
    assert exported["votes"] == [{"article": article.id, "direction": "down"}]


async def test_deleting_a_user_ends_although_an_index_has_wrong_entries(
    personal_data: ArticlesPersonalData, post: Post, redis_client: Any
) -> None:
    article = await post()
    await redis_client.zadd(USER_VOTES("cem"), {"article:92617": 1, f"article:{article.id}": 1})
    await personal_data.delete("cem")
    assert await redis_client.exists(USER_VOTES("cem")) == 0


async def test_deleting_an_account_deletes_its_articles_and_votes(
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
        confirmed = {"password": body["password"]}
        assert (await client.request("DELETE", "/users/me", json=confirmed, headers=ana)).status_code == 200
        assert (await client.get("/articles/1")).status_code == 404
        assert (await client.get("/articles/2")).json()["votes"] == 1
    assert await redis_client.smembers(ARTICLE_UP(2)) == {"user:ben"}
    assert not any("ana" in name for name in await remaining_keys(articles.valkey) if name.startswith("articles:"))
    use_layout(Layout.PLAIN)
