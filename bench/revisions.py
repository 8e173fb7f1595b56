"""Compares the CPU per request of this checkout with another revision: `python -m bench.revisions REV [PATH …]`.

Both run as `plaza serve` with the same data and take turns, round by round, so that both meet the same noise of the
machine. CPU is that of every process of the server, Valkey included, for writes until the jobs that follow them are
done. The figure of a path is the median over the rounds of (this checkout ÷ the other revision): 1.00 means no change,
1.05 five percent more CPU.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import uvloop

from bench.load import load, request

HERE = Path(__file__).parent.parent
USERS, POSTS, ARTICLES, ITEMS = 40, 400, 100, 20
# Of another system. They fill the feeds: an offset of 1,000 is within them.
SYNCED_MODELS, SYNCED_POSTS = 300, 2_000
REQUESTS, ROUNDS, CONNECTIONS = 1_920, 9, 32
IDLE_SHARE = 0.04  # of a core: what timers take at most while there is nothing to do


@dataclass(frozen=True)
class RevisionServer:
    """A running server of one revision, with tokens of its users and the ids of what they made."""

    port: int
    process: psutil.Process
    tokens: Sequence[str]
    posts: Sequence[str]
    valkey_socket: Path

    def forget_home_feeds(self) -> None:
        """Delete the home feeds, so that the next reads build them."""
        states = [f"tmp:home:user{n}:state" for n in range(len(self.tokens))]
        with socket.socket(socket.AF_UNIX) as valkey:
            valkey.connect(str(self.valkey_socket))
            valkey.sendall(" ".join(["DEL", *states]).encode() + b"\r\n")
            valkey.recv(64)

    def settle(self, seconds: float = 20.0) -> None:
        """Wait until the jobs that follow writes (events, notifications, search) have little left to do."""
        deadline, total = time.monotonic() + seconds, sum(self.cpu_seconds())
        while time.monotonic() < deadline:
            time.sleep(0.25)
            before, total = total, sum(self.cpu_seconds())
            if total - before < 0.25 * IDLE_SHARE:
                return

    def cpu_seconds(self) -> tuple[float, float]:
        """The CPU time of the service and of its Valkey so far."""
        service = valkey = 0.0
        for process in [self.process, *self.process.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess, OSError):
                seconds = _cpu_seconds(process)
                if "valkey" in process.name():
                    valkey += seconds
                else:
                    service += seconds
        return service, valkey


def _cpu_seconds(process: psutil.Process) -> float:
    """The CPU time of a process in nanoseconds' precision: Linux's other counter has steps of 10 ms."""
    if sys.platform != "linux":
        times = process.cpu_times()
        return float(times.user + times.system)
    clock_of_process = (~process.pid << 3) | 2  # as clock_getcpuclockid(3) computes it
    return time.clock_gettime(clock_of_process)


@contextlib.contextmanager
def serving_revision(folder: Path, data: Path, **more: str) -> Iterator[RevisionServer]:
    """Run `plaza serve` of a checkout with further settings, and fill it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    settings = {"PLAZA_PORT": str(port), "PLAZA_DATA_DIR": str(data), "PLAZA_RATE_LIMITS": "off", "PLAZA_QUEUE_MS": "0"}
    settings |= {"PLAZA_API_KEY": "k" * 40, "PYTHONPATH": str(folder / "src")}
    command = [sys.executable, "-m", "plaza", "serve", "--empty"]
    with subprocess.Popen(
        command, cwd=folder, env=os.environ | settings | more, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as child:
        try:
            _wait_until_ready(port)
            tokens = _register(port)
            posts = _fill(port, tokens)
            yield RevisionServer(port, psutil.Process(child.pid), tokens, posts, data / "valkey.sock")
        finally:
            child.send_signal(signal.SIGTERM)


def _wait_until_ready(port: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5).read()
            return
        if time.monotonic() > deadline:
            raise SystemExit("The server did not become ready within 60 s.")
        time.sleep(0.1)


def _send(port: int, method: str, path: str, body: object, **headers: str) -> dict[str, object]:
    ask = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), headers, method=method)
    with urllib.request.urlopen(ask, timeout=60) as response:
        answer: dict[str, object] = json.loads(response.read())
        return answer


def _register(port: int) -> list[str]:
    tokens = []
    for number in range(USERS):
        body = {"username": f"user{number}", "password": "correct horse battery"}
        tokens.append(str(_send(port, "POST", "/auth/register", body)["access_token"]))
    return tokens


def _fill(port: int, tokens: Sequence[str]) -> list[str]:
    """Give both servers the same community, and return the ids of its posts."""
    as_user = [{"Authorization": f"Bearer {token}"} for token in tokens]
    _sync_older_posts(port)
    posts = []
    for number in range(POSTS):
        body = {"content": f"Post {number} about #topic{number % 7} and the weather"}
        posts.append(str(_send(port, "POST", "/posts", body, **as_user[number % USERS])["id"]))
    for number in range(USERS):
        for other in range(1, 11):
            _send(port, "POST", f"/users/user{(number + other) % USERS}/follow", {}, **as_user[number])
    for number in range(ARTICLES):
        article = {"title": f"Article {number}", "link": f"https://example.org/{number}", "groups": ["all"]}
        _send(port, "POST", "/articles", article, **as_user[number % USERS])
    for number in range(ITEMS):
        item = {"name": f"Item {number}", "description": "An item", "price": "9.50", "qty": 1000}
        _send(port, "POST", "/shop/items", item, **{"X-API-Key": "k" * 40})
    return posts


def _sync_older_posts(port: int) -> None:
    """Send models and posts of the last days, some of them with likes."""
    key, now_ms, hour_ms = {"X-API-Key": "k" * 40}, int(time.time() * 1000), 3_600_000
    models = [{"username": f"model{n}", "role": "model"} for n in range(SYNCED_MODELS)]
    posts: list[dict[str, object]] = [
        {
            "id": f"{n:08x}-0000-4000-8000-000000000000",
            "username": f"model{n % SYNCED_MODELS}",
            "content": f"Synced post {n} about #topic{n % 7} and what else happened on a long day in the city",
            "created_at": now_ms - (n + 1) * hour_ms // 10,
        }
        for n in range(SYNCED_POSTS)
    ]
    likes = [{"username": f"user{n % USERS}", "post_id": posts[n]["id"]} for n in range(SYNCED_POSTS // 2)]
    for kind, records in (("users", models), ("posts", posts), ("likes", likes)):
        for first in range(0, len(records), 1_000):
            _send(port, "POST", f"/sync/{kind}", records[first : first + 1_000], **key)


COLD = "following, cold"
# Jobs follow these.
WRITES = {"post a post", "like and unlike", "like many posts", "follow and unfollow", "post an article", "vote"}


def _paths(checkout: RevisionServer) -> dict[str, tuple[bytes, Iterable[bytes]]]:
    """The requests of every path, with how a good answer starts."""
    authorization = [f"authorization: Bearer {token}" for token in checkout.tokens]
    ok = b"HTTP/1.1 200"

    def each_user(method: str, path: str, body: bytes = b"") -> list[bytes]:
        return [request(method, path.format(n=n), body, who) for n, who in enumerate(authorization)]

    def toggle(path: str) -> list[bytes]:
        """POST and DELETE by turns, so that every request changes something."""
        pairs = zip(each_user("POST", path), each_user("DELETE", path), strict=True)
        return [one for pair in pairs for one in pair]

    beat = b'{"location": "web", "session_id": "main", "groups": ["staff"]}'
    votes = [b'{"direction": "up"}', b'{"direction": "down"}']
    vote = [
        request("PUT", f"/articles/{1 + n % 50}/vote", votes[turn], who)
        for turn in (0, 1)
        for n, who in enumerate(authorization)
    ]
    follows = [
        request(method, f"/users/user{(n + 20) % USERS}/follow", b"", who)
        for n, who in enumerate(authorization)
        for method in ("POST", "DELETE")
    ]
    likes = [
        request(method, f"/posts/{post}/like", b"", authorization[(n // USERS + n) % USERS])
        for method in ("POST", "DELETE")
        for n, post in enumerate(checkout.posts)
    ]
    # Without end, because a link can be posted once a day.
    links = (b'{"title": "A title", "link": "https://example.net/%d"}' % n for n in itertools.count())
    authors = itertools.cycle(authorization)
    new_articles = (request("POST", "/articles", link, next(authors)) for link in links)
    return {
        "ping": (ok, [request("GET", "/ping", b"")]),
        "post a post": (b"HTTP/1.1 201", each_user("POST", "/posts", b'{"content": "Hello #plaza"}')),
        "like and unlike": (ok, toggle(f"/posts/{checkout.posts[5]}/like")),
        "like many posts": (ok, likes),
        "read a post": (ok, [request("GET", f"/posts/{post}", b"") for post in checkout.posts[:50]]),
        "read a post, signed in": (ok, each_user("GET", f"/posts/{checkout.posts[5]}")),
        "explore": (ok, [request("GET", "/feed/explore", b"")]),
        "explore, one item": (ok, [request("GET", "/feed/explore?limit=1", b"")]),
        "explore, signed in": (ok, each_user("GET", "/feed/explore")),
        "explore by offset": (ok, [request("GET", f"/feed/explore?offset={n}", b"") for n in range(0, 1_001, 20)]),
        "following": (ok, each_user("GET", "/feed/following")),
        COLD: (ok, each_user("GET", "/feed/following")),
        "hashtag": (ok, each_user("GET", "/feed/hashtag/topic3")),
        "ranked hashtag": (ok, each_user("GET", "/feed/hashtag/topic3/ranked")),
        "top models": (ok, each_user("GET", "/search/models/top")),
        "profile": (ok, [request("GET", "/users/user{0}", b"").replace(b"{0}", b"%d" % n) for n in range(USERS)]),
        "proxy HGETALL": (ok, [request("POST", "/", b'["HGETALL", "user:me"]', who) for who in authorization]),
        "follow and unfollow": (ok, follows),
        "articles": (ok, [request("GET", "/articles?order=score", b"")]),
        "articles, signed in": (ok, each_user("GET", "/articles?order=score")),
        "post an article": (b"HTTP/1.1 201", new_articles),
        "vote": (ok, vote),
        "heartbeat": (ok, each_user("POST", "/analytics/events/show/heartbeat", beat)),
        "item": (ok, [request("GET", f"/shop/items/{1 + n % ITEMS}", b"", "cookie: plaza=x") for n in range(ITEMS)]),
        "item page": (ok, [request("GET", f"/shop/pages/items/{1 + n % ITEMS}", b"") for n in range(ITEMS)]),
        "explore page": (ok, [request("GET", "/app", b"", "accept: text/html")]),
    }


def _cost(checkout: RevisionServer, name: str, expect: bytes, requests: Iterable[bytes]) -> tuple[float, float]:
    """The µs per request of the service and of Valkey."""
    count = REQUESTS
    if name == COLD:
        checkout.forget_home_feeds()
        count = CONNECTIONS  # one for each user
    before = checkout.cpu_seconds()
    uvloop.run(load(checkout.port, requests, expect, count, CONNECTIONS))
    if name in WRITES:
        checkout.settle()
    after = checkout.cpu_seconds()
    return (after[0] - before[0]) / count * 1e6, (after[1] - before[1]) / count * 1e6


def compare(mine: RevisionServer, other: RevisionServer, wanted: Sequence[str]) -> None:
    """Print the CPU per request of both, in turns, and the median ratio."""
    print(f"{'path':24}{'service + Valkey, µs':>22}{'other':>12}{'ratio':>8}")
    others = _paths(other)
    for name, (expect, requests) in _paths(mine).items():
        if wanted and name not in wanted:
            continue
        costs = [
            (_cost(mine, name, expect, requests), _cost(other, name, expect, others[name][1]))
            for _ in range(ROUNDS + 1)
        ][1:]
        ratio = statistics.median(sum(own) / sum(theirs) for own, theirs in costs)
        (own, own_valkey), (theirs, their_valkey) = (
            [statistics.median(part) for part in zip(*column, strict=True)] for column in zip(*costs, strict=True)
        )
        print(f"{name:24}{own:13.0f} + {own_valkey:<6.0f}{theirs:6.0f} + {their_valkey:<4.0f}{ratio:6.2f}", flush=True)


def compare_revisions(revision: str, wanted: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        base = Path(folder) / "base"
        subprocess.run(["git", "worktree", "add", "--detach", "-q", str(base), revision], cwd=HERE, check=True)
        stack.callback(subprocess.run, ["git", "worktree", "remove", "--force", str(base)], cwd=HERE, check=True)
        mine = stack.enter_context(serving_revision(HERE, Path(folder) / "mine"))
        other = stack.enter_context(serving_revision(base, Path(folder) / "other"))
        compare(mine, other, wanted)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit("Usage: python -m bench.revisions REV [PATH …]")
    compare_revisions(sys.argv[1], sys.argv[2:])
