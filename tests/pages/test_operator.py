"""The operator pages over HTTP: only admins see them, and they never show a secret."""

from __future__ import annotations

import re
from html import unescape

import pytest
from msgspec import json

from plaza.app import Plaza
from plaza.core.auth import API, Actor
from plaza.core.event_streams import stream_of
from plaza.core.health_history import HealthHistory
from plaza.core.keys import EVENTS_BEHIND, LEASE
from plaza.core.valkey_memory import parse_info
from plaza.demo.keys import DEMO
from plaza.keyspace.audit.report import AuditReport
from plaza.keyspace.audit_keys import AUDIT_LAST, AUDIT_RUNNING
from plaza.keyspace.browser import KeyBrowser, is_readable
from plaza.live.heartbeats import LiveService
from plaza.live.keys import EVENT_RECORDS
from plaza.live.model import (
    SLOT_MS,
    AudienceStatistics,
    EventDeclaration,
    Heartbeat,
    LeaveRequest,
    PlaybackQuality,
    Viewer,
)
from plaza.sessions.service import Sessions
from plaza.social.accounts import Accounts
from plaza.social.keys import AUTH_USER, USER, USER_POSTS
from plaza.social.model import NewPost, PasswordLogin
from plaza.social.posts import Posts
from plaza.social.users import Users
from plaza.web import chart_geometry, routes_operator_health
from plaza.web.formatting import format_utc
from plaza.web.text_html import format_date_time
from tests.pages.conftest import PageClient, ParsedPage
from tests.timeouts import within_time_limit
from tests.waiting import eventually

PAGES = [
    "/app/operator",
    "/app/operator/live",
    "/app/operator/live/stream?event=e",
    "/app/operator/live/audience?event=e",
    "/app/operator/live/audience/records.csv?event=e",
    "/app/operator/keys",
    "/app/operator/keys/post",
    "/app/operator/keys/user/key?name=user:ana",
    "/app/operator/webhooks",
    "/app/operator/webhooks/0123456789abcdef",
    "/app/operator/health",
    "/app/operator/health/stream",
    "/app/operator/health/audit",
]


@pytest.fixture
async def admin(plaza: Plaza, ana: PageClient) -> PageClient:
    await plaza.get(Users).set_role(API, "ana", "admin")
    return ana


async def test_only_admins_can_open_them(guest: PageClient, ana: PageClient) -> None:
    for path in PAGES:
        assert (await guest.get(path)).headers["location"].startswith("/app/sign-in?next="), path
        assert (await ana.get(path)).status_code == 403, path
    for path in ("/app/operator/health/audit", "/app/operator/demo"):
        assert (await ana.submit(path)).status_code == 403, path


async def test_a_demoted_admin_loses_access_at_once(plaza: Plaza, admin: PageClient) -> None:
    assert (await admin.get("/app/operator/health")).status_code == 200
    await plaza.get(Users).set_role(API, "ana", "user")
    assert (await admin.get("/app/operator/health")).status_code == 403


async def test_health_shows_consumer_groups_that_lost_events(plaza: Plaza, admin: PageClient) -> None:
    assert "lost events" not in (await admin.get("/app/operator/health")).text
    await plaza.core.valkey.call("HSET", EVENTS_BEHIND("social"), "billing<b>", plaza.core.clock.now_ms())
    page = await admin.get("/app/operator/health")
    assert "<code>billing&lt;b&gt;</code> lost events of social" in page.text


async def test_every_family_and_key_has_a_page_and_no_page_shows_a_secret(plaza: Plaza, admin: PageClient) -> None:
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
    opened = 0
    for catalogue in plaza.get(KeyBrowser).catalogues:
        for name, key in catalogue:
            page = await admin.get(f"/app/operator/keys/{name}")
            assert page.status_code == 200, name
            texts = [page.text]
            links = re.findall(r'href="(/app/operator/keys/[^"]+/key\?name=[^"]+)"', page.text)
            assert is_readable(key) or not links
            texts += [(await admin.get(unescape(link))).text for link in links]
            opened += len(links)
            for text in texts:
                assert "<script>alert" not in text
                assert not [secret for secret in secrets if secret in unescape(text)], name
    assert opened > 15


async def test_a_key_is_shown_with_its_documentation(plaza: Plaza, admin: PageClient) -> None:
    await plaza.get(Posts).create(Actor("ana", "user"), NewPost("Good morning"))
    text = unescape((await admin.get("/app/operator/keys/user_posts/key?name=user:ana:posts")).text)
    for expected in (USER_POSTS.help, USER_POSTS.contains, USER_POSTS.score, USER_POSTS.pattern, "members", "never"):
        assert expected in text
    await plaza.core.valkey.call("SET", LEASE("social.push"), 7, "PX", 9_000_000)
    assert re.search(r"lease:social\.push</code></a></th>.*in 2 h", (await admin.get("/app/operator/keys/lease")).text)
    text = (await admin.get("/app/operator/keys/user/key?name=user:ana")).text
    meanings = {field.name: field.help for field in USER.fields}
    assert meanings["bio"] not in text, "the user has no bio"
    assert meanings["created_at"] in text
    for path in (
        "/app/operator/keys/none",
        "/app/operator/keys/user/key?name=post:1",
        "/app/operator/keys/x/key?name=x",
    ):
        assert (await admin.get(path)).status_code == 404, path
    closed = await admin.get("/app/operator/keys/auth_user/key?name=auth:ana")
    assert closed.status_code == 404
    assert (await admin.get("/app/operator/keys?q=leaderboard+zset")).status_code == 200


async def test_a_key_is_found_by_its_name(admin: PageClient) -> None:
    page = (await admin.get("/app/operator/keys?q=user:ana")).text
    assert '<a href="/app/operator/keys/user/key?name=user%3Aana"><code>user:ana</code></a>' in page
    for name, family in (("user:missing", "user"), ("auth:ana", "auth_user")):
        page = (await admin.get("/app/operator/keys", params={"q": name})).text
        notice = f'does not exist, or holds a secret. <a href="/app/operator/keys/{family}">Keys of its family'
        assert notice in page, name
    assert "no key has this name" in (await admin.get("/app/operator/keys?q=no+such+key")).text


async def test_an_audience_is_shown_by_session_country_and_group(plaza: Plaza, admin: PageClient) -> None:
    assert "No events yet" in (await admin.get("/app/operator/live")).text
    live = plaza.get(LiveService)
    await live.declare("night", EventDeclaration("Harvest <night>", ["stage"], ["press"]))
    for n, country in enumerate(("DE", "DE", "NZ")):
        await live.beat(Viewer(f"~v{n}", "198.18.0.1", country), "night", Heartbeat("web", "stage", ["press"]))
    ended = plaza.core.clock.now_ms() - 2 * SLOT_MS
    record = json.encode(AudienceStatistics(1_234, ended, {"press": 12}, {"FR": 1_234})).decode()
    await plaza.core.valkey.call("HSET", EVENT_RECORDS("night"), str(ended), record)
    text = (await admin.get("/app/operator/live")).text
    assert "<title>Harvest &lt;night&gt; · Live · Plaza</title>" in text
    elements = ParsedPage(text)
    words = " ".join(" ".join(elements.texts).split())
    (bar,) = [given for tag, given in elements.elements if tag == "rect" and "y" in given]
    assert f"{format_date_time(ended)}: 1,234 viewers" in words, "shown on hover"
    assert [given["data-max"] for _, given in elements.elements if "data-max" in given] == ["1,234"]
    assert float(bar["x"]) < 600 - 2 * float(bar["width"]), "not at the end, which is the current slot"
    history = f"{format_utc(ended)} 1,234 FR 1234 press 12"
    for text_shown in ("3 watching now", "DE 2", "NZ 1", "stage 3", "press 3", history):
        assert text_shown in words
    assert "more" not in words
    for n in range(chart_geometry.MAX_SHARES + 1):
        await live.beat(Viewer(f"~w{n}", "198.18.0.1", f"X{chr(65 + n)}"), "night", Heartbeat("web", "stage"))
    assert "and 3 more" in (await admin.get("/app/operator/live")).text
    async with admin.stream("GET", "/app/operator/live/stream?event=night") as stream:
        line = await anext(line async for line in stream.aiter_lines() if line.startswith("data: "))
        assert f'"viewerCount":{chart_geometry.MAX_SHARES + 4}' in line


async def test_health_shows_figures_and_runs_an_audit(plaza: Plaza, admin: PageClient) -> None:
    await plaza.core.valkey.call("HSET", "job:social.push", "state", "failed", "error", "Oh <b>no", "runs", 3)
    await plaza.core.valkey.call("SET", LEASE("social.push"), 7, "PX", 30_000)
    text = (await admin.get("/app/operator/health")).text
    words = " ".join(" ".join(ParsedPage(text).texts).split())
    for text_shown in ("requests/s", "No audit has run yet", "social.push failed", "held for ", "Oh <b>no"):
        assert text_shown in words
    assert re.search(r"\d+\.\d [kM]B", words), "Valkey's memory"
    running = json.encode(AuditReport(1, keys=250, total=1_000, mode="failover")).decode()
    await plaza.core.valkey.call("SET", AUDIT_RUNNING(), running, "PX", 30_000)
    fragment = (await admin.get("/app/operator/health/audit")).text
    assert '<progress id="progress" max="1000" value="250">' in fragment
    assert "Repair after a failover running" in fragment
    assert "Run audit" not in fragment
    await plaza.core.valkey.call("DEL", AUDIT_RUNNING())
    last = json.encode(AuditReport(1, ended_at=2, state="done", mode="failover", repaired=1_200)).decode()
    await plaza.core.valkey.call("SET", AUDIT_LAST(), last)
    assert "1,200 repaired after a failover, 0 findings left." in (await admin.get("/app/operator/health/audit")).text
    await plaza.core.valkey.call("SET", "strange", "key")
    response = await admin.submit("/app/operator/health/audit", page="/app/operator/health")
    assert response.status_code == 303

    assert "strange" in await eventually(lambda: _with(admin, "findings."))
    # A finding about a session may contain its token, so it is counted and not shown.
    token = "0A1B2C3D-0000-4000-8000-00000000000F"
    await plaza.core.valkey.call("SET", f"viewed:{token}", "not a sorted set")
    await admin.submit("/app/operator/health/audit", page="/app/operator/health")
    assert "viewed:" in await eventually(lambda: _with(admin, "viewed:"))
    assert token not in (await admin.get("/app/operator/health")).text
    async with admin.stream("GET", "/app/operator/health/stream") as stream:
        line = await anext(line async for line in stream.aiter_lines() if line.startswith("data: "))
        assert '"requestsPerSecond"' in line


async def test_an_open_page_gets_nothing_more_when_the_role_is_taken_away(
    plaza: Plaza, admin: PageClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes_operator_health, "UPDATE_SECONDS", 0.05)
    for path in ("/app/operator/health/stream", "/app/operator/live/stream?event=night"):
        await plaza.get(Users).set_role(API, "ana", "admin")
        async with admin.stream("GET", path) as stream:
            lines = stream.aiter_lines()
            await anext(line async for line in lines if line.startswith("data: "))
            await plaza.get(Users).set_role(API, "ana", "user")
            later = [line async for line in lines if line.startswith("data: ")]
            assert len(later) < 20, "it ended long before its last update"


async def _with(admin: PageClient, words: str) -> str:
    fragment = (await admin.get("/app/operator/health/audit")).text
    return fragment if words in fragment else ""


async def test_the_health_page_warns_before_valkey_is_full(plaza: Plaza, admin: PageClient) -> None:
    used = int(parse_info(str(await plaza.core.valkey.call("INFO", "memory")))["used_memory"])
    for limit, warning in (
        (0, "has no memory limit"),
        (used * 10, ""),
        (round(used * 1.1), "of its memory. When"),
    ):
        await plaza.core.valkey.call("CONFIG", "SET", "maxmemory", limit)
        page = ParsedPage((await admin.get("/app/operator/health")).text)
        (alert,) = [attributes for _, attributes in page.elements if "data-warning" in attributes]
        assert ("hidden" in alert) == (not warning)
        assert not warning or any(warning in text for text in page.texts)
    await plaza.core.valkey.call("CONFIG", "SET", "maxmemory", 0)


async def test_the_demo_has_a_switch_if_it_is_installed(plaza: Plaza, admin: PageClient) -> None:
    assert "Turn off demo" not in (await admin.get("/app/operator/health")).text
    await plaza.core.valkey.call("HSET", DEMO(), "state", "loaded", "since", 1, "on", 1)
    assert "Turn off demo" in (await admin.get("/app/operator/health")).text
    assert (await admin.submit("/app/operator/demo", page="/app/operator/health", on="0")).status_code == 303
    assert await plaza.core.valkey.call("HGET", DEMO(), "on") == "0"
    assert "Turn on demo" in (await admin.get("/app/operator/health")).text
    await plaza.core.valkey.call("DEL", DEMO())
    assert (await admin.submit("/app/operator/demo", page="/app/operator/health", on="1")).status_code == 404


async def test_pages_are_small_and_have_no_inline_style_or_script(plaza: Plaza, admin: PageClient) -> None:
    await plaza.get(LiveService).declare("night", EventDeclaration("Night", []))
    for path in ("/app/operator/live", "/app/operator/keys", "/app/operator/keys/user", "/app/operator/health"):
        response = await admin.get(path)
        assert len(response.content) < 100_000, path
        assert "'unsafe-inline'" not in response.headers["content-security-policy"]
        for tag, attributes in ParsedPage(response.text).elements:
            assert "style" not in attributes, (path, tag)
            assert tag != "style"
            assert tag != "script" or "src" in attributes


async def test_the_health_chart_is_full_when_the_page_opens(plaza: Plaza, admin: PageClient) -> None:
    now = int(plaza.core.clock.now_s())
    await plaza.get(HealthHistory).add(now - 1_800, {"n": 700, "t": 900, "l4": 700})
    await plaza.core.valkey.call("XGROUP", "CREATE", stream_of("social", "ana").key, "billing", "0")
    page = (await admin.get("/app/operator/health")).text
    assert 'data-max="70"' in page
    for name in ("p50", "p95", "p99"):
        assert f'<path class="chart-line {name}" d="M' in page
    for text in (
        "Replication, queues and disk",
        "events in SQL to relay",
        "Used disk space",
        "Consumer lag",
        "<code>billing</code>",
    ):
        assert text in page
    week = (await admin.get("/app/operator/health", params={"span": "week"})).text
    assert "7 days ago" in week
    assert (await admin.get("/app/operator/health", params={"span": "year"})).status_code == 422


async def test_the_audience_page_shows_retention_comparison_quality_and_exports(
    plaza: Plaza, admin: PageClient
) -> None:
    live = plaza.get(LiveService)
    await live.declare("night", EventDeclaration("Night", ["<b>stage"]))
    now = plaza.core.clock.now_ms()
    await live.declare("noon", EventDeclaration("Matinee", starts_at=now - 1))
    for number in range(4):
        await live.declare(f"next {number}", EventDeclaration("Next", starts_at=now + 3_600_000))
    beat = Heartbeat("web", "<b>stage", quality=PlaybackQuality(start_ms=1_000, errors=2))
    await live.beat(Viewer("ben", "198.18.0.1", "DE"), "night", beat)
    assert "/app/operator/live/audience?event=night" in (await admin.get("/app/operator/live?event=night")).text
    page = await admin.get("/app/operator/live/audience?event=night")
    text = unescape(" ".join(re.sub("<[^>]+>", " ", page.text).split()))
    for shown in (
        "1 viewers, 0 came back",
        "0 100.0% 1 1 0 0",
        "<b>stage 1 1 1",
        "DE 1 939 939",
        "only counted with PLAZA_LIVE_SOURCES",
        "Left for good by minute No viewer",
        "Matinee",
    ):
        assert shown in text, shown
    assert "Next" not in text, "what has not begun is not compared"
    await live.leave(Viewer("ben", "198.18.0.1", "DE"), "night", LeaveRequest("web", "<b>stage"))
    left = (await admin.get("/app/operator/live/audience?event=night")).text
    assert "<title>Minute 0: 1</title>" in left, "a chart shows who left"
    assert "<b>stage" not in page.text
    session = await admin.get("/app/operator/live/audience?event=night&session=%3Cb%3Estage")
    assert "Whole event" in session.text
    assert (await admin.get("/app/operator/live/audience?event=silent")).status_code == 200
    for file in ("viewing-sessions.csv", "viewing-sessions.jsonl", "viewing-sessions.parquet", "records.csv"):
        assert f"/app/operator/live/audience/{file}?event=night" in page.text
        answer = await admin.get(f"/app/operator/live/audience/{file}?event=night")
        assert answer.status_code == 200
        assert answer.headers["content-disposition"] == f'attachment; filename="{file}"'
        if file in ("viewing-sessions.csv", "viewing-sessions.jsonl"):
            assert "ben" in answer.text
    assert (await admin.get("/app/operator/live/audience/other.csv?event=night")).status_code in (404, 422)


async def test_an_open_page_gets_nothing_more_once_its_session_ended(plaza: Plaza, admin: PageClient) -> None:
    async with within_time_limit(), admin.stream("GET", "/app/operator/health/stream") as stream:
        updates = stream.aiter_lines()
        await anext(updates)
        await plaza.get(Sessions).sign_out("ana")
        async for _ in updates:
            pass
