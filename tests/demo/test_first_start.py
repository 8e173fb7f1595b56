"""A first `plaza serve` loads the demo once, even if it is killed, and never with `--empty`."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import redis

from plaza.core.invariants import NOT_COMPARED
from plaza.demo.loader import COMMUNITY_POSTS
from tests.processes import ServerProcess, plaza, until


def connect(data_dir: Path) -> redis.Redis:
    return redis.Redis(unix_socket_path=str(data_dir / "valkey.sock"), decode_responses=True)


def test_a_first_start_responds_at_once_and_loads_the_demo_once_even_if_killed(tmp_path: Path) -> None:
    first = ServerProcess(tmp_path / "a", PLAZA_DEMO="auto", PLAZA_WORKERS="2").wait_for("Ctrl-C stops it.")
    try:
        assert "sample data is being loaded" in first.printed()
        password_file = tmp_path / "a" / "demo-password"
        assert f"sign in as robin, an admin, with the password in {password_file}" in first.printed()
        assert first.get("/healthz").status_code == 200
        with connect(tmp_path / "a") as valkey:
            until(lambda: valkey.zcard("explore:feed"))  # loading has started and is far from done
    finally:
        first.send(signal.SIGKILL, group=True)
        first.wait()

    second = ServerProcess(tmp_path / "a", PLAZA_DEMO="auto").wait_for("Ctrl-C stops it.")
    try:
        assert "sample data" not in second.printed()
        with connect(tmp_path / "a") as valkey:
            until(lambda: valkey.hget("demo:state", "state") == "loaded")
            assert (
                COMMUNITY_POSTS <= int(valkey.zcard("explore:feed")) <= COMMUNITY_POSTS + 3
            )  # the simulation adds posts
            audit = plaza(tmp_path / "a", "audit", "--json")
            found = {group["rule"] for group in json.loads(audit.stdout)["groups"]}
            assert found <= {NOT_COMPARED}, "events of the killed worker are claimed after a minute"
            off = plaza(tmp_path / "a", "demo", "--switch", "off")
            assert off.stdout == "The demo is off.\n"
            assert password_file.read_text() not in first.printed() + second.printed(), "they are no terminals"
            assert valkey.hget("demo:state", "on") == "0"
    finally:
        second.stop()


def test_an_empty_start_stays_empty(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "b", "serve", "--empty", PLAZA_DEMO="auto").wait_for("Ctrl-C stops it.")
    try:
        assert "community" not in server.printed()
        with connect(tmp_path / "b") as valkey:
            assert not valkey.exists("demo:state")
    finally:
        server.stop()
