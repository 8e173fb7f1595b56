"""The routes of `live` over HTTP, for viewers and admins."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from plaza.core.rate_limits import POLICIES, Policy, Quota
from plaza.core.valkey import Valkey
from plaza.live import keys
from tests.live.conftest import AT, Web, plaza_at
from tests.live.test_geo import in_country, write_database
from tests.servers import Cluster, Server


@pytest.mark.usefixtures("no_record_is_due")
async def test_every_figure_is_available_over_http(web: Web) -> None:
    ana, ben = web.user("ana", groups=["press"]), web.user("ben")
    first = await web.beat(ana, session_id="S1")
    assert first.status_code == 200
    assert first.json() == {"alive": 1, "session_alive": 1, "next_heartbeat_ms": 30_000}
    assert (await web.beat(ben, groups=["crew"])).json() == {
        "alive": 2,
        "session_alive": None,
        "next_heartbeat_ms": 30_000,
    }
    for path, count in {
        "/viewers/active-count": 2,
        "/viewers/count": 2,
        "/viewers/all-time-active-count": 2,
        "/viewers/total-attended-count": 2,
        "/viewers/max-concurrent-count": 2,
        "/viewers/total-login-count": 2,
        "/sessions/S1/viewers/active-count": 1,
        "/sessions/S1/viewers/total-attended-count": 1,
        "/sessions/S1/viewers/max-concurrent-count": 1,
    }.items():
        assert await web.figure(path) == {"count": count}, path
    now = await web.figure("/statistics/live")
    assert now.keys() == {"viewerCount", "timestamp", "countByUserGroup", "countByViewingCountry"}
    assert (now["viewerCount"], now["countByUserGroup"], now["countByViewingCountry"]) == (
        2,
        {"press": 1, "crew": 1},
        {"ZZ": 2},
    )
    assert (await web.figure("/sessions/S1/statistics/live"))["viewerCount"] == 1
    assert await web.figure("/statistics") == {"statistics": []}
    assert await web.figure("/sessions/S1/statistics", **{"from": 0, "to": 1}) == {"statistics": []}
    stats = await web.figure("/sessions/S1/viewers/viewing-stats")
    assert stats.keys() == {"viewers", "mean", "median", "p90"}
    overview = await web.figure("/overview")
    assert (overview["active"], overview["sessions"][0]["id"], overview["logins"]) == (2, "S1", 2)
    assert await web.figure("/viewers/count", **{"from": 0, "to": 1}) == {"count": 0}


async def test_leaving_over_http(web: Web) -> None:
    ana = web.user("ana")
    await web.beat(ana)
    left = await web.client.post(f"{AT}/leave", json={"location": "web"}, headers=ana)
    assert (left.status_code, left.json()) == (200, {"ended": True})
    assert await web.figure("/viewers/active-count") == {"count": 0}


async def test_an_event_is_declared_by_an_admin(web: Web) -> None:
    body = {"title": "Opening night", "sessions": ["S1", "S2"]}
    assert (await web.client.put(AT, json=body, headers=web.user("ana"))).status_code == 403
    declared = await web.client.put(AT, json=body, headers=web.admin)
    assert declared.status_code == 200
    assert declared.json() == {"id": "E1", "title": "Opening night", "declared": True, "sessions": ["S1", "S2"]}
    for field in ("title", "description"):
        refused = await web.client.put(AT, json={field: "Opening \x1b[31mnight"}, headers=web.admin)
        assert (refused.status_code, refused.json()["field"]) == (422, field)
    other = await web.client.put("/analytics/events/E2", json={"sessions": ["S1"]}, headers=web.admin)
    assert (other.status_code, other.json()["code"]) == (409, "session_of_another_event")
    assert (await web.client.put(AT, content=b"", headers=web.admin)).json() == declared.json()
    assert (await web.client.get(AT, headers=web.admin)).json() == declared.json()
    unknown = (await web.client.get("/analytics/events/E2", headers=web.admin)).json()
    assert unknown == {"id": "E2", "title": None, "declared": False, "sessions": []}


async def test_a_report_has_the_last_time_and_place_of_viewers(web: Web) -> None:
    ana, ben = web.user("ana"), web.user("ben")
    await web.beat(ana, session_id="S1")
    await web.beat(ben, location="phone")
    await web.client.post(f"{AT}/leave", json={"location": "phone"}, headers=ben)
    report = await web.client.post(f"{AT}/heartbeat-report", headers=web.admin)
    (alive,) = report.json()["viewers"]
    assert (alive["user_id"], alive["alive"], alive["location"], alive["session_id"]) == ("ana", True, "web", "S1")
    report = await web.client.post(f"{AT}/heartbeat-report", json={"user_ids": ["ben", "cy"]}, headers=web.admin)
    gone, unknown = report.json()["viewers"]
    assert (gone["alive"], gone["location"]) == (False, "phone")
    assert gone["last_beat"] >= alive["last_beat"]
    assert unknown == {"user_id": "cy", "last_beat": None, "alive": False, "location": None, "session_id": None}


async def test_a_long_report_continues_by_its_own_cursor_only(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plaza.live.last_seen_report.PAGE_SIZE", 2)
    monkeypatch.setattr("plaza.live.last_seen_report.MAX_VIEWERS", 2)
    for i in range(5):
        await web.beat(web.user(f"p{i}"))
    seen: list[str] = []
    body: dict[str, str] = {}
    while True:
        page = (await web.client.post(f"{AT}/heartbeat-report", json=body, headers=web.admin)).json()
        seen += [viewer["user_id"] for viewer in page["viewers"]]
        if page["next_cursor"] is None:
            break
        body = {"cursor": page["next_cursor"]}
    assert seen == [f"p{i}" for i in range(5)]
    other = await web.client.post("/analytics/events/E2/heartbeat-report", json=body, headers=web.admin)
    assert (other.status_code, other.json()["field"]) == (422, "cursor")
    for nonsense in ("5", "\u00b2 x", "1 ana", ""):
        response = await web.client.post(f"{AT}/heartbeat-report", json={"cursor": nonsense}, headers=web.admin)
        assert (response.status_code, response.json()["field"]) == (422, "cursor"), nonsense


async def test_a_token_with_other_group_claims_is_accepted(web: Web) -> None:
    for i, groups in enumerate((["press", 7, "a#b"], "press", None, {"press": 1})):
        assert (await web.beat(web.user(f"p{i}", groups=groups))).status_code == 200, groups
    assert (await web.figure("/statistics/live"))["countByUserGroup"] == {"press": 1}


FIGURES = [
    "",
    "/viewers/active-count",
    "/viewers/count",
    "/viewers/all-time-active-count",
    "/viewers/total-attended-count",
    "/viewers/max-concurrent-count",
    "/viewers/total-login-count",
    "/sessions/S1/viewers/active-count",
    "/sessions/S1/viewers/total-attended-count",
    "/sessions/S1/viewers/max-concurrent-count",
    "/sessions/S1/viewers/viewing-stats",
    "/statistics/live",
    "/statistics",
    "/sessions/S1/statistics/live",
    "/sessions/S1/statistics",
    "/overview",
    "/stream",
    "/attendance.csv",
]


async def test_figures_are_for_admins(web: Web) -> None:
    for path in FIGURES:
        assert (await web.client.get(AT + path)).status_code == 401, path
        assert (await web.client.get(AT + path, headers=web.user("ana"))).status_code == 403, path
    assert (await web.client.post(f"{AT}/heartbeat-report", headers=web.user("ana"))).status_code == 403


async def test_bad_input_is_refused_and_writes_nothing(web: Web, redis_client: Any) -> None:
    ana = web.user("ana")
    for body, field in [
        ({"location": "a#b"}, "location"),
        ({"location": "x" * 10_000}, "location"),
        ({"location": "x" * 129}, "location"),
        ({"location": ""}, "location"),
        ({"location": "a\nb"}, "location"),
        ({"location": "web\n"}, "location"),
        ({"location": "\x9b31m"}, "location"),
        ({}, "location"),
        ({"location": 7}, "location"),
        ({"location": "web", "session_id": "S#1"}, "session_id"),
        ({"location": "web", "session_id": "S{1}"}, "session_id"),
        ({"location": "web", "groups": [f"g{i}" for i in range(500)]}, "groups"),
        ({"location": "web", "groups": ["a#b"]}, "groups"),
        ({"location": "web", "user_id": "ben"}, "user_id"),
    ]:
        response = await web.client.post(f"{AT}/heartbeat", json=body, headers=ana)
        assert response.status_code == 422, body
        assert field in response.json()["field"], response.text
    for event in ("a%23b", "x" * 129, "a%7Bb%7D"):
        response = await web.client.post(f"/analytics/events/{event}/heartbeat", json={"location": "web"}, headers=ana)
        assert (response.status_code, response.json()["field"]) == (422, "event"), event
    assert (await web.client.post(f"{AT}/heartbeat", content=b"{", headers=ana)).status_code == 400
    assert (await web.client.get(f"{AT}/viewers/count?from=yesterday", headers=web.admin)).status_code == 422
    assert (await web.client.get(f"{AT}/viewers/count?since=1", headers=web.admin)).status_code == 422
    for path in ("/viewers/count", "/statistics"):
        assert (await web.client.get(f"{AT}{path}?from=2&to=1", headers=web.admin)).json()["field"] == "from"
    assert [name async for name in redis_client.scan_iter("*#*")] == []


async def test_a_session_of_another_event_is_a_conflict(web: Web) -> None:
    ana = web.user("ana")
    await web.beat(ana, session_id="S1")
    other = "/analytics/events/E2"
    response = await web.client.post(f"{other}/heartbeat", json={"location": "w", "session_id": "S1"}, headers=ana)
    assert (response.status_code, response.json()["code"]) == (409, "session_of_another_event")
    response = await web.client.get(f"{other}/sessions/S1/viewers/active-count", headers=web.admin)
    assert response.status_code == 409


async def test_a_heartbeat_needs_a_user_or_a_viewer_token(web: Web) -> None:
    for who in ({}, {"authorization": "Bearer nonsense"}):
        assert (await web.beat(who)).status_code == 401
    assert (await web.beat(web.admin)).status_code == 403


async def test_a_viewer_token_is_valid_for_heartbeats_only(web: Web, redis_client: Any) -> None:
    issued = (await web.client.post("/analytics/viewer-token")).json()
    for header in ({"authorization": f"Bearer {issued['token']}"}, {"x-access-token": issued["token"]}):
        assert (await web.beat(header)).json()["alive"] == 1
        for method, path in (("GET", "/viewers/active-count"), ("PUT", ""), ("GET", "/overview")):
            assert (await web.client.request(method, AT + path, headers=header)).status_code == 401
    assert issued["viewer_id"].startswith("~")
    assert await redis_client.smembers(keys.EVENT_ATTENDED("E1")) == {issued["viewer_id"]}


async def test_a_forged_viewer_token_is_refused(web: Web) -> None:
    import base64

    token = (await web.client.post("/analytics/viewer-token")).json()["token"]
    head, _, signature = token.split(".")
    claims = base64.urlsafe_b64encode(b'{"sub":"~me","exp":9999999999,"aud":"plaza-viewer"}').decode().rstrip("=")
    for bad in (f"{head}.{claims}.{signature}", token[:-2], token + "x", f"{head}..", f"{head}.é.x"):
        response = await web.beat({"authorization": f"Bearer {bad}".encode("latin-1")})  # type: ignore[dict-item]
        assert response.status_code == 401, bad


async def test_viewer_tokens_are_limited_by_address(web: Web) -> None:
    async def ask(times: int) -> list[int]:
        return [(await web.client.post("/analytics/viewer-token")).status_code for _ in range(times)]

    statuses = [status for each in await asyncio.gather(*(ask(50) for _ in range(8))) for status in each]
    assert 300 <= statuses.count(201) < 330, "300, and one more every two seconds"
    assert statuses.count(201) + statuses.count(429) == 400


async def test_heartbeats_of_a_user_are_limited(web: Web) -> None:
    ana = web.user("ana")
    responses = [await web.beat(ana) for _ in range(50)]
    refused = [response for response in responses if response.status_code == 429]
    assert len(refused) > 10, "30 at once, and one more every two seconds"
    assert int(refused[0].headers["retry-after"]) >= 1
    assert (await web.beat(web.user("ben"))).status_code == 200


async def test_an_ipv6_network_is_limited_as_one_address(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(POLICIES, "heartbeat", Policy(user=Quota(30, 60), address=Quota(2, 60)))
    async with plaza_at(server, tmp_path, trusted_proxies=("127.0.0.1",)) as web:
        addresses = ("2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8:0:1::1")
        responses = [await web.beat({**web.user(f"p{a[-1]}"), "x-forwarded-for": a}) for a in addresses]
    assert [response.status_code for response in responses] == [200, 200, 429, 200]


async def test_a_setting_refuses_undeclared_events(valkey: Valkey, place: Server | Cluster, tmp_path: Path) -> None:
    async with plaza_at(place, tmp_path, live_open=False) as web:
        response = await web.beat(web.user("ana"))
        assert (response.status_code, response.json()["code"]) == (403, "event_undeclared")
        await web.client.put(AT, json={}, headers=web.admin)
        assert (await web.beat(web.user("ana"))).status_code == 200


async def test_a_country_header_counts_from_a_trusted_proxy_only(
    valkey: Valkey, place: Server | Cluster, tmp_path: Path, redis_client: Any
) -> None:
    proxy_headers = {"cf-ipcountry": "NZ", "x-forwarded-for": "198.51.100.4"}
    async with plaza_at(place, tmp_path) as web:
        await web.beat({**web.user("ana"), **proxy_headers})
    assert await redis_client.zrange(keys.EVENT_STATISTICS("E1"), 0, -1) == ["ana#127.0.0.0##ZZ"]
    async with plaza_at(place, tmp_path, trusted_proxies=("127.0.0.1",)) as web:
        await web.beat({**web.user("ana"), **proxy_headers})
    assert await redis_client.zrange(keys.EVENT_STATISTICS("E1"), 0, -1) == ["ana#198.51.100.0##NZ"]


async def test_attendance_is_a_table_without_addresses(web: Web) -> None:
    ana, ben = web.user("ana"), web.user("ben")
    await web.beat(ana, session_id="S1", location="=cmd")
    await web.beat(ana, session_id="S1", location="a;\uff1dcmd")
    await web.beat(ben)
    await web.client.post(f"{AT}/leave", json={"location": "web"}, headers=ben)
    response = await web.client.get(f"{AT}/attendance.csv", headers=web.admin)
    assert response.headers["content-type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(response.text)))
    assert [(r["viewer"], r["session"], r["location"]) for r in rows] == [
        ("ana", "S1", "'=cmd"),
        ("ana", "S1", "a;'\uff1dcmd"),
        ("ben", "", "web"),
    ]
    assert rows[0]["left"] == ""
    assert rows[2]["left"] >= rows[2]["joined"] > "2020"
    assert float(rows[2]["minutes"]) >= 0
    assert "127.0.0.1" not in response.text


async def events_of(web: Web, count: int, **headers: str) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    id_ = ""
    async with web.client.stream("GET", f"{AT}/stream", headers={**web.admin, **headers}) as response:
        assert response.headers["content-type"] == "text/event-stream"
        async for line in response.aiter_lines():
            if line.startswith("id: "):
                id_ = line[4:]
            elif line.startswith("data: "):
                found.append((id_, json.loads(line[6:])))
                if len(found) == count:
                    break
    return found


async def test_the_stream_sends_figures_and_resumes(web: Web) -> None:
    await web.beat(web.user("ana"), session_id="S1")
    first, second = await events_of(web, 2)
    assert first[1]["viewerCount"] == 1
    assert first[1]["sessions"] == {"S1": 1}
    assert second[0] > first[0]
    again = await events_of(web, 2, **{"last-event-id": first[0]})
    assert again[0] == second, "missed figures come first"


async def test_the_script_is_served(web: Web) -> None:
    response = await web.client.get("/live.js")
    assert response.headers["content-type"] == "text/javascript; charset=utf-8"
    assert "plazaLive" in response.text


async def test_simultaneous_heartbeats_are_counted_right(web: Web) -> None:
    people = [web.user(f"p{i}") for i in range(60)]
    await asyncio.gather(*(web.beat(who, session_id=f"S{i % 3}") for i, who in enumerate(people * 2)))
    overview = await web.figure("/overview")
    assert (overview["active"], overview["max_concurrent"], overview["attended"]) == (60, 60, 60)
    assert [s["active"] for s in overview["sessions"]] == [20, 20, 20]


async def test_two_token_requests_with_one_idempotency_key_give_one_viewer(web: Web) -> None:
    key = {"idempotency-key": "a-viewer"}
    first, second = [(await web.client.post("/analytics/viewer-token", headers=key)).json() for _ in range(2)]
    assert first == second


async def test_a_request_with_limits_on_is_still_one_round_trip(web: Web, valkey: Valkey) -> None:
    ana = web.user("ana")
    for _ in range(2):  # the first creates the session, the second claims it
        await web.beat(ana, session_id="S1")
    timing = (await web.beat(ana, session_id="S1")).headers["server-timing"]
    assert f'valkey;desc="{2 if valkey.clustered else 1} round trip' in timing


async def test_addresses_and_countries_are_stored_as_the_settings_say(
    valkey: Valkey, place: Server | Cluster, tmp_path: Path, redis_client: Any
) -> None:
    geoip = write_database(tmp_path / "geo.mmdb", {"127.0.0.0/8": in_country("NZ")})
    for mode, stored in (("full", "127\\.0\\.0\\.1"), ("truncated", "127\\.0\\.0\\.0"), ("hashed", "[0-9a-f]{16}")):
        async with plaza_at(place, tmp_path, live_address=mode, geoip=geoip) as web:
            await web.beat(web.user("ana"))
            (member,) = await redis_client.zrange(keys.EVENT_STATISTICS("E1"), 0, -1)
            assert re.fullmatch(f"ana#{stored}##NZ", member), member
