"""The operators' pages of users and growth over HTTP, without JavaScript."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest

from plaza.accounts.model import LogQuery
from plaza.accounts.security_log import SqlSecurityLog
from plaza.app import Plaza
from plaza.core.auth import API
from plaza.desk.directory import UserDirectory
from plaza.desk.growth import Growth
from plaza.social.keys import USER
from plaza.social.users import Users
from tests.pages.conftest import PageClient

USERS = "/app/operator/users"
BEN = f"{USERS}/ben"


@pytest.fixture
async def admin(plaza: Plaza, ana: PageClient) -> PageClient:
    await plaza.get(Users).set_role(API, "ana", "admin")
    return ana


@pytest.fixture
async def ben(url: str, plaza: Plaza) -> AsyncIterator[PageClient]:
    async with PageClient(url) as client:
        await client.sign_up("ben")
        await plaza.get(UserDirectory).rebuild()
        yield client


async def logged(plaza: Plaza) -> list[tuple[str, str]]:
    found = await plaza.get(SqlSecurityLog).search(LogQuery(kind="admin"))
    return [(action.action, action.subject) for action in found.actions]


async def test_an_operator_finds_a_user(plaza: Plaza, admin: PageClient, ben: PageClient) -> None:
    await plaza.get(UserDirectory).rebuild()
    for query, found in (
        ({}, True),
        ({"q": "BE"}, True),
        ({"q": "x"}, False),
        ({"role": "admin"}, False),
        ({"role": "nonsense", "state": "active"}, True),
        ({"state": "suspended"}, False),
    ):
        assert (f'href="{BEN}"' in (await admin.get(USERS, params=query)).text) is found, query
    page = (await admin.get(BEN)).text
    for link in ("/app/people/ben", "reports?author=ben", "orders?customer=ben", "log?q=ben"):
        assert link in page
    assert (await admin.get(f"{USERS}/zacharias")).status_code == 404


async def test_an_operator_is_asked_before_a_suspension(plaza: Plaza, admin: PageClient, ben: PageClient) -> None:
    assert "All sessions end" in (await admin.get(f"{BEN}/suspend")).text
    assert "Sign out" in (await ben.get("/app")).text, "it only asked"
    await admin.submit(f"{BEN}/suspension", page=f"{BEN}/suspend")
    assert "Sign out" not in (await ben.get("/app")).text
    assert "suspended" in (await admin.get(USERS, params={"state": "suspended"})).text
    await admin.submit(f"{BEN}/suspension", page=BEN, on="0")
    assert "No users match." in (await admin.get(USERS, params={"state": "suspended"})).text
    assert ("POST /app/operator/users/{username}/suspension", "ben") in await logged(plaza)


async def test_an_operator_changes_a_role(plaza: Plaza, admin: PageClient, ben: PageClient) -> None:
    asked = (await admin.get(f"{BEN}/role", params={"role": "admin"})).text
    assert "sees and changes everything" in asked
    await admin.submit(f"{BEN}/role", page=f"{BEN}/role?role=admin")
    assert (await ben.get(USERS)).status_code == 200
    assert ("POST /app/operator/users/{username}/role", "ben") in await logged(plaza)
    assert (await admin.submit(f"{BEN}/role", page=BEN, role="king")).status_code == 422
    assert (await admin.get(f"{BEN}/role", params={"role": "admin"})).headers["location"] == BEN, "nothing to change"


async def test_the_only_admin_is_told_that_no_other_one_is_left(admin: PageClient, ben: PageClient) -> None:
    own, warning = f"{USERS}/ana/role?role=user", "No other user is an admin."
    assert warning in (await admin.get(own)).text
    assert warning not in (await admin.get(f"{BEN}/role?role=model")).text
    await admin.submit(f"{BEN}/role", page=f"{BEN}/role?role=admin")
    assert warning not in (await admin.get(own)).text


async def test_an_operator_is_warned_before_losing_the_own_rights(admin: PageClient) -> None:
    for question in ("suspend", "role?role=user"):
        assert "This is your own account" in (await admin.get(f"{USERS}/ana/{question}")).text, question


async def test_a_profile_of_another_service_is_shown_whatever_its_time(plaza: Plaza, admin: PageClient) -> None:
    for name, created_at in (("early", "-5"), ("late", str(2**53)), ("odd", "soon")):
        await plaza.core.valkey.call("HSET", USER(name), "username", name, "role", "user", "created_at", created_at)
        assert f"@{name}" in (await admin.get(f"{USERS}/{name}")).text, name
    await plaza.get(UserDirectory).rebuild()
    assert f'href="{USERS}/late"' in (await admin.get(USERS)).text


async def test_a_missing_user_leads_back_to_the_list(admin: PageClient) -> None:
    missing = await admin.get(f"{USERS}/zacharias")
    assert (missing.status_code, f'href="{USERS}">Back' in missing.text) == (404, True)


async def test_an_operator_ends_sessions(plaza: Plaza, admin: PageClient, ben: PageClient) -> None:
    page = (await admin.get(BEN)).text
    one = page.partition(f'href="{BEN}/sessions?id=')[2].partition('"')[0]
    form = await admin.hidden_fields(f"{BEN}/sessions?id={one}")
    for _ in range(2):
        assert (await admin.post(f"{BEN}/sessions", data=form)).status_code == 303, "a second click changes nothing"
    assert "Sign out" not in (await ben.get("/app")).text
    assert "Signed in nowhere." in (await admin.get(BEN)).text
    await ben.submit("/app/sign-in", page="/app/sign-in", username="ben", password="correct horse")
    assert "all 1 sessions" in (await admin.get(f"{BEN}/sessions")).text
    await admin.submit(f"{BEN}/sessions", page=f"{BEN}/sessions")
    assert "Sign out" not in (await ben.get("/app")).text
    assert ("POST /app/operator/users/{username}/sessions", "ben") in await logged(plaza)


async def test_an_operator_writes_and_deletes_notes(admin: PageClient, ben: PageClient) -> None:
    form = {**await admin.hidden_fields(BEN), "text": "Call <b>first</b>."}
    for _ in range(2):
        assert (await admin.post(f"{BEN}/notes", data=form)).status_code == 303
    page = (await admin.get(BEN)).text
    assert page.count("Call &lt;b&gt;first&lt;/b&gt;.") == 1
    refused = await admin.submit(f"{BEN}/notes", page=BEN, text="x" * 2_001)
    assert (refused.status_code, "x" * 2_001 in refused.text) == (422, True)
    path = page.partition(f'href="{BEN}/notes/')[2].partition('"')[0]
    assert "Call &lt;b&gt;first" in (await admin.get(f"{BEN}/notes/{path}")).text, "what is asked about is quoted"
    assert (await admin.get(f"{USERS}/ana/notes/{path}")).status_code == 404
    form = await admin.hidden_fields(f"{BEN}/notes/{path}")
    for _ in range(2):
        assert (await admin.post(f"{BEN}/notes/{path}", data=form)).status_code == 303, "a second click changes nothing"
    assert "Call" not in (await admin.get(BEN)).text


async def test_growth_is_shown_as_charts_with_tables(plaza: Plaza, admin: PageClient, ben: PageClient) -> None:
    await plaza.get(Growth).count_new()
    page = (await admin.get("/app/operator/growth")).text
    for title in ("New users", "Active users", "Posts", "Votes", "Orders"):
        assert f'aria-label="{title} by day, as a table"' in page
    assert "2 in all" in page
    assert re.search(r"<title>\d{4}-\d\d-\d\d: [12]</title>", page)
    assert (await admin.get("/app/operator/growth", params={"days": "365"})).status_code == 200
    assert (await admin.get("/app/operator")).headers["location"] == "/app/operator/growth"


async def test_only_admins_see_these_pages(ana: PageClient) -> None:
    for path in (USERS, f"{USERS}/ana", f"{USERS}/ana/suspend", f"{USERS}/ana/role", "/app/operator/growth"):
        assert (await ana.get(path)).status_code == 403, path
