"""Deleting an account on a running server: a user with data in every domain, and a user with only a token."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.end_to_end.user_traces import ACCOUNT, active_user, remaining_traces, traces
from tests.processes import plaza
from tests.timeouts import TIME_LIMIT_SECONDS


def test_a_deleted_user_is_in_no_key_and_no_table_row_of_any_domain(tmp_path: Path) -> None:
    data = tmp_path / "var"
    with active_user(data) as (server, client):
        post = client.get("/feed/explore").json()["posts"][0]["post"]["id"]
        article = client.get("/articles").json()["articles"][0]["id"]
        with httpx.Client(base_url=server.url, timeout=TIME_LIMIT_SECONDS) as token_client:
            token_client.headers["authorization"] = "Bearer " + plaza(data, "token", "tokenuser").stdout.strip()
            for method, path, body in (
                ("POST", f"/posts/{post}/like", None),
                ("PUT", f"/articles/{article}/vote", {"direction": "up"}),
                ("POST", "/analytics/events/keynote/heartbeat", {"location": "hall"}),
            ):
                assert token_client.request(method, path, json=body).status_code == 200, path
            assert len(traces(data, "tokenuser")) > 5
            assert token_client.delete("/users/me").json() == {"id": "tokenuser", "deleted": True}
            assert remaining_traces(data, "tokenuser") == []
            assert token_client.get("/whoami").status_code == 401
        assert client.get(f"/posts/{post}").json()["likesCount"] == 1, "only the author's own like is left"
        confirmation = {"password": ACCOUNT["password"]}
        assert client.request("DELETE", "/users/me", json=confirmation).status_code == 200
        assert remaining_traces(data, "activeuser") == []
        audit = plaza(data, "audit")
        assert audit.returncode == 0, audit.stdout
