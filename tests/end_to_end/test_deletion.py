"""Deleting an account on a running server: someone who has been everywhere, and someone who had only a token."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.end_to_end.user_traces import ACCOUNT, traces, wanderer
from tests.processes import plaza
from tests.timeouts import TIME_LIMIT_SECONDS


def test_who_leaves_is_named_nowhere_in_all_five_domains_and_the_tables(tmp_path: Path) -> None:
    data = tmp_path / "var"
    with wanderer(data) as (server, client):
        post = client.get("/feed/explore").json()["posts"][0]["post"]["id"]
        article = client.get("/articles").json()["articles"][0]["id"]
        with httpx.Client(base_url=server.url, timeout=TIME_LIMIT_SECONDS) as passing:
            passing.headers["authorization"] = "Bearer " + plaza(data, "token", "passenger").stdout.strip()
            for method, path, body in (
                ("POST", f"/posts/{post}/like", None),
                ("PUT", f"/articles/{article}/vote", {"direction": "up"}),
                ("POST", "/analytics/events/keynote/heartbeat", {"location": "hall"}),
            ):
                assert passing.request(method, path, json=body).status_code == 200, path
            assert len(traces(data, "passenger")) > 5
            assert passing.delete("/users/me").json() == {"id": "passenger", "deleted": True}
            assert traces(data, "passenger") == []
            assert passing.get("/whoami").status_code == 401
        assert client.get(f"/posts/{post}").json()["likesCount"] == 1, "her own"
        confirmed = {"password": ACCOUNT["password"]}
        assert client.request("DELETE", "/users/me", json=confirmed).status_code == 200
        assert traces(data, "wanderer") == []
        checked = plaza(data, "audit")
        assert checked.returncode == 0, checked.stdout
