"""Sync from another system, over HTTP and from a file."""

from __future__ import annotations

import codecs
import json
from pathlib import Path
from typing import Any

import bcrypt
import httpx
import pytest

from plaza.core.auth import API, Actor
from plaza.social import jsonl_import
from plaza.social import keys as k
from plaza.social import posts as posts_module
from plaza.social.jsonl_import import BadLine, JsonlImporter
from plaza.social.model import PasswordLogin
from tests.social.conftest import ADMIN, Social

HASH = bcrypt.hashpw(b"correct horse", bcrypt.gensalt(4)).decode()
POSTS = ["11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"]
COMMENTS = ["33333333-3333-4333-8333-333333333333", "44444444-4444-4444-8444-444444444444"]

OLD = 1_600_000_000_000
RECORDS: list[dict[str, Any]] = [
    {"type": "user", "username": "ana"},
    {"type": "user", "username": "mia", "role": "model", "created_at": OLD, "email": "mia@mail.example",
     "password_hash": HASH},
    {"type": "follow", "follower": "ana", "following": "mia", "created_at": OLD + 1},
    {"type": "post", "id": POSTS[0], "username": "mia", "content": "long ago #tea", "created_at": OLD + 2},
    {"type": "post", "id": POSTS[1], "user_id": "mia", "content": "now", "hashtags": ["Tea"], "media_url": "/a.png"},
    {"type": "like", "username": "ana", "post_id": POSTS[0], "created_at": OLD + 3},
    {"type": "like", "username": "ana", "post_id": POSTS[1]},
    {"type": "bookmark", "username": "ana", "post_id": POSTS[1], "created_at": OLD + 4},
    {"type": "comment", "id": COMMENTS[0], "post_id": POSTS[1], "username": "ana", "content": "second",
     "created_at": OLD + 6},
    {"type": "comment", "id": COMMENTS[1], "post_id": POSTS[1], "username": "mia", "content": "first",
     "created_at": OLD + 5},
]  # fmt: skip


async def send(http: httpx.AsyncClient, social: Social, records: list[dict[str, Any]]) -> list[str]:
    statuses = []
    for record in records:
        kind = record["type"]
        body = [{name: value for name, value in record.items() if name != "type"}]
        answer = await http.post(f"/sync/{kind}s", json=body, headers=social.token(API))
        assert answer.status_code == 200, answer.text
        statuses.append(answer.json()["results"][0]["status"])
    return statuses


async def test_records_keep_ids_and_times_and_a_second_sync_changes_nothing(
    social: Social, http: httpx.AsyncClient, redis_client: Any, assert_consistent: Any
) -> None:
    assert await send(http, social, RECORDS) == ["created"] * len(RECORDS)
    keyspace = await assert_consistent()
    assert await redis_client.zscore(k.USERS_MODELS(), "mia") == OLD
    assert await redis_client.zscore(k.USER_POSTS("mia"), POSTS[0]) == OLD + 2
    assert await redis_client.zscore(k.USER_BOOKMARKED("ana"), POSTS[1]) == OLD + 4
    assert await redis_client.lrange(k.POST_COMMENTS(POSTS[1]), 0, -1) == COMMENTS[::-1], "oldest first"
    assert await redis_client.exists(k.HASHTAG_RANKED("tea")) == 1
    assert await redis_client.zscore(k.MODELS_TOP_ENGAGEMENT(), "mia") == 3 + 3 + 4 + 10
    social.clock.advance(seconds=5)
    assert await send(http, social, RECORDS) == ["unchanged"] * len(RECORDS)
    assert await assert_consistent() == keyspace


async def test_a_profile_has_a_version_once_posts_may_have_copied_it(
    social: Social, http: httpx.AsyncClient, redis_client: Any
) -> None:
    await send(http, social, RECORDS)
    assert await redis_client.exists(k.USER_VERSION("mia")) == 0
    assert await send(http, social, [{"type": "user", "username": "mia", "display_name": "Mia"}]) == ["updated"]
    await social.jobs.restyle()
    assert await redis_client.hget(k.POST(POSTS[0]), "display_name") == "Mia"
    assert await redis_client.exists(k.USER_VERSION("mia")) == 1


async def test_a_synced_password_hash_works_and_is_synced_once(
    social: Social, http: httpx.AsyncClient, redis_client: Any
) -> None:
    record = RECORDS[1]
    await send(http, social, [record])
    assert "password_hash" not in await redis_client.hgetall(k.USER("mia"))
    assert (await social.accounts.login(PasswordLogin("mia", "correct horse"))).user.role == "model"
    assert await send(http, social, [record]) == ["unchanged"]
    assert await social.accounts.login(PasswordLogin("mia", "correct horse"))


async def test_changes_of_the_other_system_are_synced(
    social: Social, http: httpx.AsyncClient, redis_client: Any, assert_consistent: Any
) -> None:
    await send(http, social, RECORDS)
    changes = [
        {"type": "user", "username": "mia", "display_name": "Mia", "role": "user", "email": None},
        RECORDS[4] | {"content": "now #coffee", "created_at": OLD + 9},
        RECORDS[8] | {"content": "edited"},
    ]
    assert await send(http, social, changes) == ["updated"] * 3
    assert await send(http, social, [RECORDS[8] | {"id": POSTS[0], "username": "missing"}]) == ["error"]
    assert (await redis_client.hgetall(k.COMMENT(COMMENTS[0])))["content"] == "edited"
    assert await redis_client.hget(k.USER("mia"), "email") is None
    await social.jobs.restyle()
    assert await redis_client.hget(k.POST(POSTS[1]), "display_name") == "Mia"
    await assert_consistent()


async def test_a_time_that_is_synced_later_is_stored(
    social: Social, http: httpx.AsyncClient, redis_client: Any, assert_consistent: Any
) -> None:
    untimed = [{name: value for name, value in record.items() if name != "created_at"} for record in RECORDS]
    await send(http, social, untimed)
    points = await redis_client.zscore(k.MODELS_TOP_ENGAGEMENT(), "mia")
    timed = [record for record in RECORDS if "created_at" in record]
    assert await send(http, social, timed) == ["updated"] * len(timed)
    assert await redis_client.zscore(k.USER_BOOKMARKED("ana"), POSTS[1]) == OLD + 4
    assert await redis_client.lrange(k.POST_COMMENTS(POSTS[1]), 0, -1) == COMMENTS[::-1], "oldest first"
    assert await redis_client.hget(k.COMMENT(COMMENTS[0]), "created_at") == str(OLD + 6)
    keyspace = await assert_consistent()
    assert await redis_client.zscore(k.MODELS_TOP_ENGAGEMENT(), "mia") == points
    social.clock.advance(seconds=5)
    for again in (timed, untimed):
        assert set(await send(http, social, again)) == {"unchanged"}
    assert await assert_consistent() == keyspace


async def test_blocks_refuse_synced_follows_and_nothing_else(
    social: Social, http: httpx.AsyncClient, assert_consistent: Any
) -> None:
    await send(http, social, RECORDS[:5])
    await social.relations.block(Actor("mia", "model"), "ana")
    assert await send(http, social, [RECORDS[2], *RECORDS[6:9]]) == ["error", "created", "created", "created"]
    keyspace = await assert_consistent()
    assert (keyspace["user_following"], len(keyspace["comment"])) == ({}, 1)


async def test_a_banned_post_is_kept_up_to_date_and_stays_banned(
    social: Social, http: httpx.AsyncClient, redis_client: Any, assert_consistent: Any
) -> None:
    await send(http, social, RECORDS[:5])
    for id in POSTS:
        await social.posts.ban(ADMIN, id, on=True)
    assert await send(http, social, RECORDS[5:]) == ["created"] * len(RECORDS[5:])
    assert set(await send(http, social, RECORDS)) == {"unchanged"}
    keyspace = await assert_consistent()
    assert (keyspace["explore_feed"], keyspace["models_top_engagement"]) == ({}, {(): {"mia": 0}})
    for id in POSTS:
        await social.posts.ban(ADMIN, id, on=False)
    assert await redis_client.zscore(k.MODELS_TOP_ENGAGEMENT(), "mia") == 3 + 3 + 4 + 10
    await assert_consistent()


BAD: list[tuple[str, dict[str, Any], str | None]] = [
    ("user", {}, "username"),
    ("user", {"username": "a:b"}, "username"),
    ("user", {"username": "me"}, "username"),
    ("user", {"username": "x", "password": "secret"}, "password"),
    ("user", {"username": "x", "password_hash": "md5"}, "password_hash"),
    ("user", {"username": "x", "postCount": 4}, "postCount"),
    ("user", {"username": "x", "role": "king"}, "role"),
    ("user", {"username": "x", "created_at": -1}, "created_at"),
    ("follow", {"follower": "ana", "following": "ana"}, "following"),
    ("follow", {"follower": "ana", "following": "missing"}, None),
    ("follow", {"follower": "missing", "following": "ana"}, None),
    ("post", {"id": "x", "username": "ana", "content": "x"}, "id"),
    ("post", {"id": POSTS[0], "username": "missing", "content": "x"}, None),
    ("post", {"id": POSTS[0], "username": "ana", "content": ""}, "content"),
    ("like", {"username": "ana", "post_id": POSTS[0]}, None),
    ("bookmark", {"username": "ana", "post_id": POSTS[0]}, None),
    ("comment", {"id": COMMENTS[0], "post_id": POSTS[0], "username": "ana", "content": "x"}, None),
]


async def test_an_invalid_record_is_reported_and_does_not_affect_others(
    social: Social, http: httpx.AsyncClient, ana: Actor, assert_consistent: Any
) -> None:
    before = await assert_consistent()
    for kind, record, field in BAD:
        answer = await http.post(f"/sync/{kind}s", json=[record], headers=social.token(API))
        result = answer.json()["results"][0]
        assert (result["status"], result.get("field")) == ("error", field), record
        assert result["error"]
        assert "secret" not in answer.text
    assert await assert_consistent() == before
    mixed = [{"username": "new"}, {"username": "a:b"}, "no object", None, {"username": "other"}]
    results = (await http.post("/sync/users", json=mixed, headers=social.token(API))).json()["results"]
    assert [r["status"] for r in results] == ["created", "error", "error", "error", "created"]


async def test_sync_needs_the_api_key_and_accepts_a_thousand_records(
    social: Social, http: httpx.AsyncClient, ana: Actor
) -> None:
    for actor in (ana, ADMIN):
        assert (await http.post("/sync/users", json=[], headers=social.token(actor))).status_code == 403
    assert (await http.post("/sync/users", json=[])).status_code == 401
    many = [{"username": f"u{i}"} for i in range(1_001)]
    assert (await http.post("/sync/users", json=many, headers=social.token(API))).status_code == 422
    answer = await http.post("/sync/users", json=many[:1_000], headers=social.token(API))
    assert {result["status"] for result in answer.json()["results"]} == {"created"}


async def test_a_post_that_is_being_deleted_is_not_synced(
    social: Social, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, assert_consistent: Any
) -> None:
    monkeypatch.setattr(posts_module, "MAX_DELETE_BATCHES", 0)
    await send(http, social, RECORDS[:4])
    await social.sync.apply("like", [{"username": f"fan{i}", "post_id": POSTS[0]} for i in range(150)])
    await social.posts.delete(ADMIN, POSTS[0])
    assert await send(http, social, [RECORDS[3]]) == ["error"]
    assert await social.jobs.continue_deletions() == 1
    assert not (await assert_consistent())["posts_leaving"]
    assert await send(http, social, [RECORDS[3]]) == ["created"]
    assert await social.jobs.continue_deletions() == 0
    await assert_consistent()


def write_lines(path: Path, lines: list[Any]) -> Path:
    path.write_bytes(
        b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines)
    )
    return path


async def test_a_file_is_imported_and_invalid_lines_are_reported_by_number(
    social: Social, tmp_path: Path, assert_consistent: Any
) -> None:
    bad: list[BadLine] = []
    first = codecs.BOM_UTF8 + json.dumps(RECORDS[0]).encode() + b"\r"  # some editors write a byte order mark and CRLF
    lines: list[Any] = [first, *RECORDS[1:3], b"{oops", b"", {"type": "king"}, {"type": "user", "username": "a:b"},
                        b"[]", b'"' + b"x" * 2_000_000 + b'"', *RECORDS[3:]]  # fmt: skip
    path = write_lines(tmp_path / "all.jsonl", lines)
    importer = JsonlImporter(social.valkey, [social.sync], bad.append)
    done = await importer.run(path)
    assert [b.line for b in sorted(bad, key=lambda b: b.line)] == [4, 6, 7, 8, 9]
    assert done.counts == {"created": len(RECORDS), "error": 5}
    keyspace = await assert_consistent()
    assert not keyspace["imports"]
    assert (await importer.run(path)).counts == {"unchanged": len(RECORDS), "error": 5}
    assert await assert_consistent() == keyspace


async def test_an_interrupted_import_continues(
    social: Social, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, assert_consistent: Any
) -> None:
    monkeypatch.setattr(jsonl_import, "MAX_RECORDS", 10)
    path = write_lines(tmp_path / "users.jsonl", [{"type": "user", "username": f"u{i}"} for i in range(95)])
    importer = JsonlImporter(social.valkey, [social.sync], lambda bad: None)
    offsets: list[int] = []

    def advance(offset: int) -> None:
        offsets.append(offset)
        if len(offsets) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await importer.run(path, advance)
    started: list[int] = []
    done = await importer.run(path, started.append)
    assert started[0] == offsets[3]
    assert started[-1] == path.stat().st_size
    assert done.line == 95
    assert len((await assert_consistent())["user"]) == 95
