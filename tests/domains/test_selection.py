"""`PLAZA_DOMAINS` and entry points: which domains run, and that the others leave no trace."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from plaza.app import DOMAINS, running
from plaza.challenges.service import Challenges
from plaza.core import domain_packages
from plaza.core.domain import Domain, Parts
from plaza.core.domain_selection import installed_domains, require_personal_data, selected_domains
from plaza.core.errors import OperatorError, SettingError
from plaza.core.functions import Library
from plaza.core.keyspace import Catalogue, Key
from plaza.core.settings import Settings
from plaza.core.sql import Sql
from plaza.core.tokens import USERNAME
from plaza.keyspace.audit import Audits
from tests.http_servers import client_of, serving
from tests.pages.conftest import PageClient
from tests.servers import Server

NAMES = [domain.name for domain in DOMAINS]


@pytest.fixture
def settings(server: Server, tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path, valkey_url=server.url, rate_limits=False)


async def migrated(sql: Sql) -> set[str]:
    """The domains whose tables exist."""
    rows = await sql.fetch_all(text("SELECT version_num FROM alembic_version"))
    return {row.version_num.partition("_")[0] for row in rows}


@pytest.mark.parametrize("name", NAMES)
async def test_each_domain_runs_alone(name: str, settings: Settings, server: Server) -> None:
    chosen = {domain.name for domain in selected_domains(DOMAINS, [name])}
    async with running(replace(settings, domains=(name,))) as plaza:
        worker = asyncio.create_task(plaza.worker.run())
        async with client_of(plaza.app) as client:
            await check_responses(client, chosen)
        await plaza.get(Audits).run()
        assert {timer.partition(".")[0] for timer in plaza.worker.timers} <= {*chosen, "core", "rebuild"}
        assert await migrated(plaza.core.sql) <= {*chosen, "core"}
        worker.cancel()
        await asyncio.wait({worker})
    with server.redis_client() as redis_client:
        written = list(redis_client.scan_iter(count=1000))
    for domain in DOMAINS:
        if domain.name not in chosen:
            assert [key for key in written if domain.catalogue.match(key)] == [], domain.name
            assert f"events:{domain.name}" not in written


async def check_responses(client: httpx.AsyncClient, chosen: set[str]) -> None:
    """The process works, and routes of other domains do not exist."""
    assert (await client.get("/readyz")).status_code == 200
    paths = (await client.get("/openapi.json")).json()["paths"]
    samples = {
        "articles": "/articles",
        "challenges": "/challenges",
        "social": "/feed/explore",
        "shop": "/shop/items",
        "search": "/search",
        "webhooks": "/webhooks",
        "reports": "/reports",
        "media": "/media",
    }
    for name, path in samples.items():
        assert (path in paths) == (name in chosen), path
    assert (await client.get("/app", headers={"accept": "text/html"})).status_code == 404
    assert (await client.get("/", headers={"accept": "text/html"})).headers["location"] == "/docs"
    for path, operations in paths.items():
        if "get" in operations and "{" not in path and "stream" not in path and path not in ("/events", "/metrics"):
            assert (await client.get(path)).status_code < 500, path


async def test_pages_show_only_the_domains_that_run(settings: Settings) -> None:
    some = replace(settings, domains=("accounts", "media", "social", "shop", "articles"))
    async with running(some) as plaza, serving(plaza.app) as url, PageClient(url) as ana:
        await ana.sign_up("ana")
        page = (await ana.get("/app")).text
        assert 'href="/app/articles"' in page
        for path in ("/app/challenges", "/app/events", "/app/search", "/app/report"):
            assert path not in page
            assert (await ana.get(path)).status_code == 404
        posted = await ana.submit("/app/posts", page="/app/sign-in", next="", content="Hello")
        assert (await ana.get(posted.headers["location"])).status_code == 200
        listed = await ana.submit("/app/articles", page="/app/sign-in", title="A", link="https://a.org/", groups="g")
        assert (await ana.get(listed.headers["location"])).status_code == 200
        with pytest.raises(OperatorError, match="PLAZA_DOMAINS"):
            plaza.get(Challenges)


async def test_a_domain_that_is_turned_off_keeps_its_tables(settings: Settings) -> None:
    for domains in ((), ("articles",), ()):
        async with running(replace(settings, domains=domains)) as plaza:
            assert "challenges" in await migrated(plaza.core.sql)


def test_required_domains_come_along_in_the_usual_order() -> None:
    assert [domain.name for domain in selected_domains(DOMAINS, ["shop", "articles"])] == [
        "articles",
        "caching",
        "shop",
    ]
    assert selected_domains(DOMAINS, []) == list(DOMAINS)
    with pytest.raises(SettingError, match=r"PLAZA_DOMAINS names polls, which is not installed.*articles"):
        selected_domains(DOMAINS, ["polls"])


def test_a_package_offers_a_domain_by_an_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def install(value: str) -> None:
        folder = tmp_path / "polls-1.0.dist-info"
        folder.mkdir(exist_ok=True)
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: polls\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(f"[plaza.domains]\npolls = {value}\n")
        domain_packages._installed.cache_clear()  # a process knows what was installed when it started

    monkeypatch.syspath_prepend(str(tmp_path))
    install("examples.polls.domain:DOMAIN")
    names = [domain.name for domain in installed_domains(DOMAINS)]
    assert names.index("shop") < names.index("polls") < names.index("search"), "search finds what packages offer"
    install("examples.polls.domain:build")
    with pytest.raises(OperatorError, match=r"entry point polls .* no Domain"):
        installed_domains(DOMAINS)
    install("examples.polls.absent:DOMAIN")
    with pytest.raises(OperatorError, match=r"domain polls cannot be loaded .* uninstall"):
        installed_domains(DOMAINS)
    install("plaza.shop.domain:DOMAIN")
    with pytest.raises(OperatorError, match="Two domains are called shop"):
        installed_domains(DOMAINS)


class SamplePersonalData:
    """Personal data that forget nothing, or lack a method."""

    async def export(self, username: str) -> dict[str, Any]:
        return {}

    async def delete(self, username: str) -> None: ...

    async def rename(self, old: str, new: str) -> None: ...


def test_a_key_of_a_user_without_personal_data_is_refused() -> None:
    notes = Key("notes:<author>", "set", "A user's notes.", owner="author")
    catalogue = Catalogue("notes", {"notes": notes}, {"author": USERNAME})
    domain = Domain(Library("notes", catalogue, ""), [], lambda core: Parts([]))
    for parts in (Parts([]), Parts([], personal_data=SamplePersonalData()), Parts([], personal_keys=[notes])):
        with pytest.raises(OperatorError, match=r"notes:<author>.*personal_keys="):
            require_personal_data(domain, parts)
    require_personal_data(domain, Parts([], personal_data=SamplePersonalData(), personal_keys=[notes]))
    incomplete: Any = type("Incomplete", (), {"export": print, "delete": print})()
    with pytest.raises(OperatorError, match="lack the method rename"):
        require_personal_data(domain, Parts([], personal_data=incomplete, personal_keys=[notes]))
