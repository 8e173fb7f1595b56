"""Deleting and exporting an account reaches the other domains."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from plaza.core.auth import Actor
from plaza.core.domain import PersonalData
from plaza.core.errors import Forbidden
from plaza.social import keys as k
from tests.social.conftest import ADMIN, Social


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
