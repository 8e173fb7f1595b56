"""`plaza users rename` against a running server, for a user with data in every domain."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.end_to_end.user_traces import ACCOUNT, API_KEY, active_user, remaining_traces, traces
from tests.processes import plaza
from tests.timeouts import TIME_LIMIT_SECONDS


def test_a_rename_reaches_all_five_domains_and_the_tables(tmp_path: Path) -> None:
    data = tmp_path / "var"
    with active_user(data) as (server, client):
        before = traces(data, "activeuser")
        assert len(before) > 25
        tables = {trace.partition(" ")[0] for trace in before}
        assert tables >= {"challenge", "member", "post", "tracking", "shop_orders"}, "SQL tables, too"
        done = plaza(data, "users", "rename", "activeuser", "newname", PLAZA_API_KEY=API_KEY)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("activeuser is now newname.")
        assert remaining_traces(data, "activeuser") == []
        assert client.get("/whoami").status_code == 401
        new_account = {**ACCOUNT, "username": "newname"}
        signed_in = httpx.post(f"{server.url}/auth/login", json=new_account, timeout=TIME_LIMIT_SECONDS)
        client.headers["authorization"] = f"Bearer {signed_in.json()['access_token']}"
        export = client.get("/users/me/export").json()
        for domain in ("social", "articles", "challenges", "live", "shop"):
            assert any(export[domain].values()), domain
        again = plaza(data, "users", "rename", "activeuser", "newname")
        assert (again.returncode, again.stderr.count("\n")) == (1, 1)
