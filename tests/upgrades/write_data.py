"""Writes the data directory of an older Plaza, for `test_upgrades.py`.

`previous_release.tar.xz` was written by revision f8be96d, the last before events, notifications, search, reports and
media. Since then every domain got new keys, and several got tables or columns. To write it again, or that of another
revision, run this from the repository:

    mkdir /tmp/older && git archive f8be96d | tar -x -C /tmp/older
    PYTHONPATH=/tmp/older/src .venv/bin/python tests/upgrades/write_data.py

The program uses only HTTP and the command line, so it works with any revision that has the five documented domains.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

ARCHIVE = Path(__file__).parent / "previous_release.tar.xz"
# What an operator keeps: the keys, the tables and the secrets.
KEPT = ("valkey/appendonlydir", "plaza.sqlite", "plaza.sqlite-wal", "api-key", "jwt-secret", "data-key")
PASSWORD = "correct horse battery staple"


def write(data_dir: Path) -> None:
    environment = {**os.environ, "PLAZA_DATA_DIR": str(data_dir), "PLAZA_PORT": "0", "PLAZA_DEMO": "off"}
    with (data_dir.parent / "output").open("w+") as output:
        command = [sys.executable, "-m", "plaza", "serve"]
        server = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        try:
            fill(_url(server, Path(output.name)), (data_dir / "api-key").read_text().strip())
        finally:
            server.send_signal(signal.SIGTERM)
            assert server.wait(60) == 0


def _url(server: subprocess.Popen[bytes], output: Path) -> str:
    while server.poll() is None:
        found = re.search(r"http://127\.0\.0\.1:\d+", output.read_text())
        if found and "Ctrl-C" in output.read_text():
            return found[0]
        time.sleep(0.05)
    raise SystemExit(output.read_text())


def fill(url: str, api_key: str) -> None:
    """Create something of every documented domain."""
    with httpx.Client(base_url=url, timeout=60) as http:

        def send(method: str, path: str, token: str = "", body: Any = None) -> Any:
            headers = {"authorization": f"Bearer {token}"} if token else {"x-api-key": api_key}
            answer = http.request(method, path, json=body, headers=headers)
            assert answer.is_success, (method, path, answer.text)
            return answer.json() if answer.content else None

        tokens = {}
        for name in ("ana", "ben", "cleo"):
            profile = {"username": name, "password": PASSWORD, "display_name": name.title()}
            tokens[name] = send("POST", "/auth/register", "-", profile)["access_token"]
        ana, ben, cleo = tokens.values()
        _fill_social(send, ana, ben, cleo)
        article = send(
            "POST", "/articles", ana, {"title": "Lua", "link": "https://example.org/lua", "groups": ["code"]}
        )
        send("PUT", f"/articles/{article['id']}/vote", ben, {"direction": "up"})
        send("PUT", f"/articles/{article['id']}/vote", cleo, {"direction": "down"})
        run = send("POST", "/challenges", ana, {"title": "Run", "category": 1, "is_public": True, "duration": 100})
        send("POST", f"/challenges/{run['id']}/join", ben)
        send("POST", f"/challenges/{run['id']}/track", ben, {})
        written = send("POST", f"/challenges/{run['id']}/posts", ben, {"text": "Five kilometres"})
        send("PUT", f"/challenges/posts/{written['id']}/reaction", cleo)
        send("POST", "/challenges/roll")
        send("PUT", "/analytics/events/launch", body={"title": "Launch", "sessions": ["talk"]})
        send("POST", "/analytics/events/launch/heartbeat", ana, {"location": "web", "session_id": "talk"})
        mug = send("POST", "/shop/items", body={"name": "Mug", "description": "Blue", "price": "7.50", "qty": 10})
        send("POST", "/shop/login", ana, {"username": "ana", "password": PASSWORD})  # the client keeps its cookie
        send("GET", f"/shop/items/{mug['id']}", ana)
        send("PUT", f"/shop/cart/items/{mug['id']}", ana, {"qty": 2})
        send("POST", "/shop/checkout", ana, {})


def _fill_social(send: Any, ana: str, ben: str, cleo: str) -> None:
    send("POST", "/users/ana/follow", ben)
    send("POST", "/users/cleo/mute", ben)
    post = send("POST", "/posts", ana, {"content": "Good morning #plaza"})
    send("POST", f"/posts/{post['id']}/like", ben)
    send("POST", f"/posts/{post['id']}/bookmark", ben)
    send("POST", f"/posts/{post['id']}/comments", cleo, {"content": "Hello @ana"})
    banned = send("POST", "/posts", cleo, {"content": "Buy now"})
    send("PATCH", f"/posts/{banned['id']}/ban", body={})
    send("PATCH", "/users/ben", ben, {"bio": "Runner"})


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        data_dir = Path(folder) / "var"
        write(data_dir)
        with tarfile.open(ARCHIVE, "w:xz", preset=9) as archive:
            for name in KEPT:
                if (data_dir / name).exists():
                    archive.add(data_dir / name, name, filter=_anonymous)
    print(f"{ARCHIVE.name}: {ARCHIVE.stat().st_size:,} bytes")


def _anonymous(file: tarfile.TarInfo) -> tarfile.TarInfo:
    file.uid = file.gid = 0
    file.uname = file.gname = ""
    return file


if __name__ == "__main__":
    main()
