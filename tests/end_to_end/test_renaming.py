"""`plaza users rename` against a running server, by someone who has been everywhere."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.end_to_end.user_traces import ACCOUNT, API_KEY, traces, wanderer
from tests.processes import plaza
from tests.timeouts import TIME_LIMIT_SECONDS


def test_a_rename_reaches_all_five_domains_and_the_tables(tmp_path: Path) -> None:
    data = tmp_path / "var"
    with wanderer(data) as (server, client):
        before = traces(data, "wanderer")
        assert len(before) > 25
        tables = {trace.partition(" ")[0] for trace in before}
        assert tables >= {"challenge", "member", "post", "tracking", "shop_orders"}, "what is in SQL, too"
        done = plaza(data, "users", "rename", "wanderer", "settler", PLAZA_API_KEY=API_KEY)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("wanderer is now settler.")
        assert traces(data, "wanderer") == []
        assert client.get("/whoami").status_code == 401
        settler = {**ACCOUNT, "username": "settler"}
        signed_in = httpx.post(f"{server.url}/auth/login", json=settler, timeout=TIME_LIMIT_SECONDS)
        client.headers["authorization"] = f"Bearer {signed_in.json()['access_token']}"
        held = client.get("/users/me/export").json()
        for domain in ("social", "articles", "challenges", "live", "shop"):
            assert any(held[domain].values()), domain
        again = plaza(data, "users", "rename", "wanderer", "settler")
        assert (again.returncode, again.stderr.count("\n")) == (1, 1)
