"""Deleting and exporting an account reaches the other domains."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import httpx
import pytest

from plaza.core import rate_limits
from plaza.core.auth import Actor
from plaza.core.domain import PersonalData
from plaza.core.errors import Forbidden
from plaza.core.functions import Functions
from plaza.core.http.app import make_app
from plaza.core.http.app_options import AppOptions
from plaza.core.rate_limits import Limiter
from plaza.core.valkey import Valkey
from plaza.social import keys as k
from plaza.social.account_export import AccountExport
from plaza.social.domain import DOMAIN
from tests.http_servers import client_of
from tests.social.conftest import ADMIN, SETTINGS, Social


class OtherDomain:
    """The personal data of a domain that stores three votes of every user."""

    def __init__(self) -> None:
        self.deleted: list[str] = []

    async def export(self, username: str) -> dict[str, Any]:
        return {"votes": 3}

    async def delete(self, username: str) -> None:
        self.deleted.append(username)

    async def rename(self, old: str, new: str) -> None:
        pass


@pytest.fixture
def articles() -> OtherDomain:
    return OtherDomain()


@pytest.fixture
def other_domains(articles: OtherDomain) -> dict[str, PersonalData]:
    return {"articles": articles}


async def test_the_user_or_an_admin_can_delete_an_account_in_every_domain(
    social: Social, articles: OtherDomain, http: httpx.AsyncClient, ana: Actor, bob: Actor
) -> None:
    await social.engagements.like(ana, (await social.post(bob)).id)
    await social.valkey.call(
        "HSET", k.USER("ana"), "theme", "dark"
    )  # a field that another service wrote through the proxy
    exported = (await http.get("/users/me/export", headers=social.token(ana))).json()
    assert exported["articles"] == {"votes": 3}
    assert exported["social"]["profile"]["email"] == "ana@mail.example"
    assert exported["social"]["custom"] == {"theme": "dark"}
    assert len(exported["social"]["liked"]) == 1
    with pytest.raises(Forbidden):
        await social.deletion.delete(bob, "ana")
    assert (await http.delete("/users/ana", headers=social.token(ADMIN))).status_code == 200
    assert articles.deleted == ["ana"]
    gone = await http.delete("/users/kim", headers=social.token(ADMIN))
    assert (gone.status_code, articles.deleted) == (200, ["ana", "kim"]), "kim is known in another domain only"


async def test_an_export_is_read_while_it_is_sent(social: Social, ana: Actor) -> None:
    for n in range(60):
        await social.post(ana, f"{n} " + "x" * 5_000)
    chunks = await social.parts[AccountExport].everything(ana, None)
    received = await anext(chunks)
    before = await hgetall_calls(social.valkey)
    async for chunk in chunks:
        received += chunk
    assert await hgetall_calls(social.valkey) - before >= 20, "most posts are read after the first chunk"
    exported = json.loads(received)
    assert {post["post"]["content"].split()[0] for post in exported["social"]["posts"]} == {str(n) for n in range(60)}


async def hgetall_calls(valkey: Valkey) -> int:
    """The number of hashes that Valkey has read."""
    stats = [str(await node.call("INFO", "commandstats")) for node in valkey.primaries()]
    return sum(int(found[1]) for text in stats if (found := re.search(r"cmdstat_hgetall:calls=(\d+)", text)))


async def test_exports_are_limited_by_the_hour(social: Social, ana: Actor) -> None:
    functions = Functions(social.valkey, [DOMAIN.library, rate_limits.LIBRARY])
    await functions.load()
    settings = replace(SETTINGS, rate_limits=True)
    app = make_app(
        list(DOMAIN.routes),
        social.parts,
        auth=social.auth,
        settings=settings,
        options=AppOptions(limiter=Limiter(functions)),
    )
    async with client_of(app) as http:
        paths = ["/users/me/export", "/users/me/export.zip"] * 3
        answers = [await http.get(path, headers=social.token(ana)) for path in paths]
    assert [answer.status_code for answer in answers] == [200] * 5 + [429]
    assert int(answers[-1].headers["retry-after"]) > 60
