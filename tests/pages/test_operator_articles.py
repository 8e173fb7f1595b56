"""The operators' page of articles over HTTP, without JavaScript."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from plaza.app import Plaza, running
from plaza.articles.keys import ARTICLE, ARTICLES_BY_TIME
from plaza.articles.model import NewArticle
from plaza.articles.service import Articles
from plaza.core.auth import API, Actor
from plaza.core.settings import Settings
from plaza.reports.model import NewReport
from plaza.reports.service import Reports
from plaza.search.rebuild import IndexRebuild
from plaza.social.users import Users
from plaza.web import REQUIRED_DOMAINS, routes_operator_articles
from tests.databases import with_tables
from tests.http_servers import serving
from tests.pages.conftest import PageClient
from tests.servers import Server

DESK = "/app/operator/articles"


@pytest.fixture
async def admin(plaza: Plaza, ana: PageClient) -> PageClient:
    await plaza.get(Users).set_role(API, "ana", "admin")
    return ana


async def post(plaza: Plaza, author: str, title: str, *groups: str) -> int:
    link = f"https://example.org/{title.replace(' ', '-')}"
    return (await plaza.get(Articles).post(Actor(author, "user"), NewArticle(title, link, [*groups]), title)).id


async def found(admin: PageClient, **query: str) -> list[int]:
    page = (await admin.get(DESK, params=query)).text
    ids = [int(id) for id in re.findall(r'<th scope="row"><a href="/app/articles/(\d+)"', page)]
    assert ("No articles match." in page) is (ids == []), query
    return ids


async def test_an_operator_finds_articles(plaza: Plaza, admin: PageClient) -> None:
    assert "No articles yet." in (await admin.get(DESK)).text
    tea = await post(plaza, "ben", "Green tea", "food")
    coffee = await post(plaza, "cleo", "Coffee and tea")
    await plaza.get(IndexRebuild).run()
    assert await found(admin) == [coffee, tea]
    assert await found(admin, author=" @ben") == [tea]
    assert await found(admin, author="no such name {}") == []
    assert sorted(await found(admin, title="tea")) == [tea, coffee]
    assert await found(admin, title="tea", author="cleo") == [coffee]
    assert await found(admin, title="milk") == []
    assert await found(admin, number=f" #{tea} ") == [tea]
    for wrong in ("0", "999999", "9" * 500, "<b>", "-1"):
        assert await found(admin, number=wrong) == [], wrong


async def test_the_list_of_articles_has_pages(plaza: Plaza, admin: PageClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes_operator_articles, "ROWS", 2)
    ids = [await post(plaza, "ben", f"Number {n}") for n in range(3)]
    await plaza.get(IndexRebuild).run()
    for query in ("", "author=ben", "title=number"):
        listed: list[str] = []
        path: str = f"{DESK}?{query}"
        while path:
            page = (await admin.get(path)).text
            listed += re.findall(r'<th scope="row"><a href="/app/articles/(\d+)"', page)
            older = re.search(r'href="([^"]+)" rel="next">Older', page)
            path = older[1].replace("&amp;", "&") if older else ""
        assert sorted(map(int, listed)) == ids, query


async def test_an_article_is_shown_with_its_figures_and_links(plaza: Plaza, admin: PageClient) -> None:
    id = await post(plaza, "ben", "<b>Tea</b>", "food", "drinks")
    await plaza.get(Reports).create(Actor("cleo", "user"), NewReport("article", str(id), "Advertising"))
    page = (await admin.get(DESK)).text
    for shown in (
        "&lt;b&gt;Tea",
        'href="/app/operator/users/ben"',
        'href="/app/groups/drinks"',
        "1 open report<",
        f'href="/app/operator/keys?of=article&amp;id={id}"',
        f'href="/app/operator/reports?subject=article&amp;id={id}"',
    ):
        assert shown in page, shown
    keys = (await admin.get("/app/operator/keys", params={"of": "article", "id": str(id)})).text
    assert f"upvoted:{id}" in keys
    asked = await admin.get(f"/app/articles/{id}/delete")
    assert f'href="{DESK}" aria-current' in asked.text
    deleted = await admin.submit(f"/app/articles/{id}/delete", page=f"/app/articles/{id}/delete")
    assert deleted.headers["location"] == DESK
    assert await found(admin, number=str(id)) == []


async def test_a_deletion_leads_back_to_the_list_that_it_was_asked_from(plaza: Plaza, admin: PageClient) -> None:
    id = await post(plaza, "ben", "Tea")
    (delete,) = re.findall(rf'href="(/app/articles/{id}/delete[^"]+)"', (await admin.get(f"{DESK}?author=ben")).text)
    asked = (await admin.get(delete)).text
    assert f'href="{DESK}?author=ben">Back' in asked
    deleted = await admin.submit(re.findall(r'action="([^"]+delete[^"]+)"', asked)[0], page=delete)
    assert deleted.headers["location"] == f"{DESK}?author=ben"
    elsewhere = (await admin.get(f"/app/articles/{await post(plaza, 'ben', 'Tea')}/delete?back=//evil.example")).text
    assert "evil.example" not in re.findall(r'<a class="button quiet" href="([^"]+)"', elsewhere)[0]


async def test_an_article_of_another_service_is_shown_whatever_it_has(plaza: Plaza, admin: PageClient) -> None:
    for id, fields in ((7, ("time", "soon", "votes", "many")), (8, ("author", "<x>", "time", "-5"))):
        await plaza.core.valkey.call("HSET", ARTICLE(id), "link", "javascript:x", *fields)
        await plaza.core.valkey.call("ZADD", ARTICLES_BY_TIME(), id, f"article:{id}")
    page = await admin.get(DESK)
    assert page.status_code == 200
    assert "javascript" not in page.text
    for shown in ("Article 7", "&lt;x&gt;", "unknown"):
        assert shown in page.text, shown


async def test_without_the_search_articles_are_found_by_author_and_number(server: Server, tmp_path: Path) -> None:
    settings = Settings(
        data_dir=with_tables(tmp_path),
        valkey_url=server.url,
        rate_limits=False,
        domains=(*REQUIRED_DOMAINS, "articles"),
    )
    async with running(settings) as plaza, serving(plaza.app) as url, PageClient(url) as admin:
        await admin.sign_up("ana")
        await plaza.get(Users).set_role(API, "ana", "admin")
        id = await post(plaza, "ben", "Tea")
        page = (await admin.get(DESK)).text
        assert 'name="title"' not in page
        assert "/app/operator/users/" not in page
        assert await found(admin, author="ben") == [id]


async def test_only_admins_see_this_page(ana: PageClient) -> None:
    assert (await ana.get(DESK)).status_code == 403
