"""The operators' pages over HTTP: for admins alone, saying what is there, and never a secret."""

from __future__ import annotations

import re
from html import unescape

import pytest
from msgspec import json

from plaza.app import Plaza
from plaza.core.auth import API, Actor
from plaza.core.keys import LEASE
from plaza.demo.keys import DEMO
from plaza.keyspace.audit.keys import AUDIT_RUNNING
from plaza.keyspace.audit.report import AuditReport
from plaza.keyspace.browser import KeyBrowser, is_readable
from plaza.live.keys import EVENT_RECORDS
from plaza.live.model import SLOT_MS, AudienceStatistics, EventDeclaration, Heartbeat, Viewer
from plaza.live.service import LiveService
from plaza.social.accounts import Accounts
from plaza.social.keys import AUTH_USER
from plaza.social.model import NewPost, PasswordLogin
from plaza.social.posts import Posts
from plaza.social.users import Users
from plaza.web import charts
from plaza.web.formatting import utc
from plaza.web.text_html import exact
from tests.pages.conftest import Elements, Surfer
from tests.waiting import eventually

PAGES = [
    "/app/operator",
    "/app/operator/live",
    "/app/operator/live/stream?event=e",
    "/app/operator/keys",
    "/app/operator/keys/post",
    "/app/operator/keys/user/key?name=user:ana",
    "/app/operator/health",
    "/app/operator/health/stream",
    "/app/operator/health/audit",
]


@pytest.fixture
async def admin(plaza: Plaza, ana: Surfer) -> Surfer:
    await plaza.get(Users).set_role(API, "ana", "admin")
    return ana


async def test_they_are_for_admins_alone(guest: Surfer, ana: Surfer) -> None:
    for path in PAGES:
        assert (await guest.get(path)).headers["location"].startswith("/app/sign-in?next="), path
        assert (await ana.get(path)).status_code == 403, path
    for path in ("/app/operator/health/audit", "/app/operator/demo"):
        assert (await ana.fill(path)).status_code == 403, path


async def test_who_is_no_admin_any_more_is_out_at_once(plaza: Plaza, admin: Surfer) -> None:
    assert (await admin.get("/app/operator/health")).status_code == 200
    await plaza.get(Users).set_role(API, "ana", "user")
    assert (await admin.get("/app/operator/health")).status_code == 403


async def test_every_family_and_every_key_can_be_looked_at_and_no_secret_is_on_any_page(
    plaza: Plaza, admin: Surfer
) -> None:
    signed_in = await plaza.get(Accounts).login(PasswordLogin("ana", "correct horse"))
    await plaza.core.valkey.call("HSET", "user:ana", "email", "ana@example.org", "shoe_size", "39, private")
    await plaza.get(Posts).create(Actor("ana", "user"), NewPost("A post <script>alert(1)</script> #odd"))
    await plaza.get(LiveService).declare("night", EventDeclaration("Night", ["stage"]))
    await plaza.get(LiveService).beat(Viewer("ana", "198.18.0.1", "DE"), "night", Heartbeat("web", "stage", ["press"]))
    secrets = [
        *(await plaza.core.valkey.call("HVALS", AUTH_USER("ana"))),
        *(cookie for cookie in admin.cookies.values() if len(cookie) > 20),
        signed_in.refresh_token.rpartition(".")[2],
        "ana@example.org",
        "39, private",
    ]
    assert len(secrets) >= 5
    looked = 0
    for catalogue in plaza.get(KeyBrowser).catalogues:
        for name, key in catalogue:
            page = await admin.get(f"/app/operator/keys/{name}")
            assert page.status_code == 200, name
            texts = [page.text]
            links = re.findall(r'href="(/app/operator/keys/[^"]+/key\?name=[^"]+)"', page.text)
            assert is_readable(key) or not links
            texts += [(await admin.get(unescape(link))).text for link in links]
            looked += len(links)
            for text in texts:
                assert "<script>alert" not in text
                assert not [secret for secret in secrets if secret in unescape(text)], name
    assert looked > 15


async def test_a_key_is_shown_in_the_words_of_its_document(plaza: Plaza, admin: Surfer) -> None:
    await plaza.get(Posts).create(Actor("ana", "user"), NewPost("Good morning"))
    text = (await admin.get("/app/operator/keys/user_posts/key?name=user:ana:posts")).text
    assert "Everything someone has posted, banned posts too." in text
    for words in ("post id", "creation, Unix milliseconds", "user:&lt;username&gt;:posts", "members", "never"):
        assert words in text
    await plaza.core.valkey.call("SET", LEASE("social.push"), 7, "PX", 9_000_000)
    assert re.search(r"lease:social\.push</code></a></th>.*in 2 h", (await admin.get("/app/operator/keys/lease")).text)
    text = (await admin.get("/app/operator/keys/user/key?name=user:ana")).text
    assert "about this person" not in text, "a field that is not there"
    assert "when the account was made, Unix milliseconds" in text
    for path in (
        "/app/operator/keys/none",
        "/app/operator/keys/user/key?name=post:1",
        "/app/operator/keys/x/key?name=x",
    ):
        assert (await admin.get(path)).status_code == 404, path
    closed = await admin.get("/app/operator/keys/auth_user/key?name=auth:ana")
    assert closed.status_code == 404
    assert (await admin.get("/app/operator/keys?q=leaderboard+zset")).status_code == 200


async def test_an_audience_is_shown_by_session_country_and_group(plaza: Plaza, admin: Surfer) -> None:
    assert "No event has been declared" in (await admin.get("/app/operator/live")).text
    live = plaza.get(LiveService)
    await live.declare("night", EventDeclaration("Harvest <night>", ["stage"]))
    for n, country in enumerate(("DE", "DE", "NZ")):
        await live.beat(Viewer(f"~v{n}", "198.18.0.1", country), "night", Heartbeat("web", "stage", ["press"]))
    ended = plaza.core.clock.now_ms() - 2 * SLOT_MS
    record = json.encode(AudienceStatistics(1_234, ended, {"press": 12}, {"FR": 1_234})).decode()
    await plaza.core.valkey.call("HSET", EVENT_RECORDS("night"), str(ended), record)
    text = (await admin.get("/app/operator/live")).text
    assert "<title>Harvest &lt;night&gt; · Live · Plaza</title>" in text
    elements = Elements(text)
    words = " ".join(" ".join(elements.words).split())
    (bar,) = [given for tag, given in elements.found if tag == "rect" and "y" in given]
    assert f"{exact(ended)}: 1,234 viewers" in words, "to whoever points at it"
    assert [given["data-most"] for _, given in elements.found if "data-most" in given] == ["1,234"]
    assert float(bar["x"]) < 600 - 2 * float(bar["width"]), "not at the end, which is now"
    history = f"{utc(ended)} 1,234 FR 1234 press 12"
    for said in ("3 watching now", "DE 2", "NZ 1", "stage 3", "press 3", history):
        assert said in words
    assert "more" not in words
    for n in range(charts.SHARES + 1):
        await live.beat(Viewer(f"~w{n}", "198.18.0.1", f"X{chr(65 + n)}"), "night", Heartbeat("web", "stage"))
    assert "and 3 more" in (await admin.get("/app/operator/live")).text
    async with admin.stream("GET", "/app/operator/live/stream?event=night") as stream:
        line = await anext(line async for line in stream.aiter_lines() if line.startswith("data: "))
        assert f'"viewerCount":{charts.SHARES + 4}' in line


async def test_health_says_how_it_goes_and_an_audit_can_be_run(plaza: Plaza, admin: Surfer) -> None:
    await plaza.core.valkey.call("HSET", "job:social.push", "state", "failed", "error", "Oh <b>no", "runs", 3)
    await plaza.core.valkey.call("SET", LEASE("social.push"), 7, "PX", 30_000)
    text = (await admin.get("/app/operator/health")).text
    words = " ".join(" ".join(Elements(text).words).split())
    for said in ("requests a second", "No audit has been run yet", "social.push failed", "held, ", "Oh <b>no"):
        assert said in words
    assert re.search(r"\d+\.\d [kM]B", words), "Valkey's memory"
    under_way = json.encode(AuditReport(1, keys=250, total=1_000)).decode()
    await plaza.core.valkey.call("SET", AUDIT_RUNNING(), under_way, "PX", 30_000)
    piece = (await admin.get("/app/operator/health/audit")).text
    assert '<progress id="progress" max="1000" value="250">' in piece
    assert "Run an audit" not in piece
    await plaza.core.valkey.call("DEL", AUDIT_RUNNING())
    await plaza.core.valkey.call("SET", "strange", "key")
    begun = await admin.fill("/app/operator/health/audit", page="/app/operator/health")
    assert begun.status_code == 303

    assert "strange" in await eventually(lambda: _with(admin, "findings."))
    # What is found about a session may name its token: it is counted, and not shown.
    token = "0A1B2C3D-0000-4000-8000-00000000000F"
    await plaza.core.valkey.call("ZADD", "recent:", 1, token)
    await admin.fill("/app/operator/health/audit", page="/app/operator/health")
    assert "recent:" in await eventually(lambda: _with(admin, "recent:"))
    assert token not in (await admin.get("/app/operator/health")).text
    async with admin.stream("GET", "/app/operator/health/stream") as stream:
        line = await anext(line async for line in stream.aiter_lines() if line.startswith("data: "))
        assert '"requestsPerSecond"' in line


async def _with(admin: Surfer, words: str) -> str:
    piece = (await admin.get("/app/operator/health/audit")).text
    return piece if words in piece else ""


async def test_the_demo_has_a_switch_where_there_is_one(plaza: Plaza, admin: Surfer) -> None:
    assert "Turn the demo" not in (await admin.get("/app/operator/health")).text
    await plaza.core.valkey.call("HSET", DEMO(), "state", "loaded", "since", 1, "on", 1)
    assert "Turn the demo off" in (await admin.get("/app/operator/health")).text
    assert (await admin.fill("/app/operator/demo", page="/app/operator/health", on="0")).status_code == 303
    assert await plaza.core.valkey.call("HGET", DEMO(), "on") == "0"
    assert "Turn the demo on" in (await admin.get("/app/operator/health")).text
    await plaza.core.valkey.call("DEL", DEMO())
    assert (await admin.fill("/app/operator/demo", page="/app/operator/health", on="1")).status_code == 404


async def test_no_page_is_heavy_or_has_style_or_script_in_it(plaza: Plaza, admin: Surfer) -> None:
    await plaza.get(LiveService).declare("night", EventDeclaration("Night", []))
    for path in ("/app/operator/live", "/app/operator/keys", "/app/operator/keys/user", "/app/operator/health"):
        answer = await admin.get(path)
        assert len(answer.content) < 100_000, path
        assert "'unsafe-inline'" not in answer.headers["content-security-policy"]
        for tag, attributes in Elements(answer.text).found:
            assert "style" not in attributes, (path, tag)
            assert tag != "style"
            assert tag != "script" or "src" in attributes
