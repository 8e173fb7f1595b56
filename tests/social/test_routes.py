"""Every route over HTTP: its responses and errors."""

from __future__ import annotations

from typing import Any

import httpx

from plaza.core.auth import API, Actor
from plaza.social.domain import DOMAIN
from tests.social.conftest import ADMIN, Social

NO_POST = "99999999-9999-4999-8999-999999999999"

POST_FIELDS = {
    "id", "user_id", "username", "display_name", "avatar", "user_role", "content", "media_url", "hashtags",
    "created_at", "likesCount", "commentsCount", "bookmarksCount", "isLiked", "isBookmarked",
}  # fmt: skip
USER_FIELDS = {
    "id", "username", "display_name", "bio", "avatar", "links", "role", "postCount", "followerCount",
    "followingCount", "created_at",
}  # fmt: skip


async def test_the_routes_of_a_post(social: Social, http: httpx.AsyncClient, ana: Actor, bob: Actor) -> None:
    as_ana, as_bob, as_admin = social.token(ana), social.token(bob), social.token(ADMIN)
    made = await http.post("/posts", json={"content": "Good #Tea", "hashtags": ["#Cake"]}, headers=as_ana)
    post = made.json()
    assert (made.status_code, post.keys(), post["hashtags"]) == (201, POST_FIELDS, ["tea", "cake"])
    at = f"/posts/{post['id']}"
    assert (await http.get(at)).json() == post
    liked = await http.post(f"{at}/like", headers=as_bob)
    assert (liked.status_code, liked.json()) == (
        200, {"id": post["id"], "changed": True, "isLiked": True, "likesCount": 1}
    )  # fmt: skip
    assert (await http.post(f"{at}/like", headers=as_bob)).json()["changed"] is False
    assert (await http.post(f"{at}/bookmark", content=b"{}", headers=as_bob)).json()["isBookmarked"] is True
    comment = await http.post(f"{at}/comments", json={"content": "Yes!"}, headers=as_bob)
    assert (comment.status_code, comment.json()["username"]) == (201, "bob")
    assert (await http.get(f"{at}/comments")).json()["comments"] == [comment.json()]
    assert [user["id"] for user in (await http.get(f"{at}/likes", headers=as_ana)).json()["users"]] == ["bob"]
    seen = (await http.get(at, headers=as_bob)).json()
    assert (seen["isLiked"], seen["isBookmarked"], seen["commentsCount"]) == (True, True, 1)
    assert (await http.delete(f"{at}/like", headers=as_bob)).json()["likesCount"] == 0
    assert (await http.delete(f"{at}/bookmark", headers=as_bob)).json()["isBookmarked"] is False
    edited = await http.patch(at, json={"content": "Good #coffee"}, headers=as_ana)
    assert edited.json()["hashtags"] == ["coffee", "cake"]
    assert (await http.delete(f"/comments/{comment.json()['id']}", headers=as_ana)).json()["deleted"] is True
    assert (await http.patch(f"{at}/ban", headers=as_admin)).json()["banned_by"] == "root"
    assert (await http.get(at)).status_code == 404
    assert "banned" not in (await http.delete(f"{at}/ban", headers=as_admin)).json()
    assert (await http.delete(at, headers=as_ana)).json() == {"id": post["id"], "deleted": True}
    assert (await http.get(at)).status_code == 404


async def test_feed_items_have_users_unless_left_out(social: Social, http: httpx.AsyncClient, ana: Actor) -> None:
    mia = await social.create_user("mia", "model")
    await social.relations.follow(ana, "mia")
    post = await social.post(mia, "#tea")
    await social.engagements.like(ana, post.id)
    await social.engagements.bookmark(ana, post.id)
    as_ana = social.token(ana)
    for path in (
        "/feed/explore", "/feed/following", "/feed/hashtag/tea", "/feed/hashtag/TEA", "/feed/hashtag/tea/ranked",
        "/users/mia/posts", "/users/me/bookmarked", "/users/ana/bookmarked",
    ):  # fmt: skip
        body = (await http.get(path, headers=as_ana)).json()
        (item,) = body["posts"]
        assert item["post"].keys() == POST_FIELDS, path
        assert item["user"].keys() == USER_FIELDS, path
        assert item["post"]["isLiked"] is True, path
        assert item["post"]["isBookmarked"] is True, path
        assert body["pagination"] == {"limit": 20, "count": 1, "next_cursor": None}, path
        (bare,) = (await http.get(f"{path}?includeUser=false", headers=as_ana)).json()["posts"]
        assert bare == {"post": item["post"]}, path
    (found,) = (await http.get("/search/hashtags/top-posts?hashtags=tea&postsPerHashtag=5", headers=as_ana)).json()[
        "hashtags"
    ]
    assert (found["hashtag"], len(found["posts"])) == ("tea", 1)
    (top,) = (await http.get("/search/models/top?limit=5", headers=as_ana)).json()["users"]
    assert (top["id"], top["engagement"]) == ("mia", 7)
    newest = (await http.get("/search/users/newest?role=model", headers=as_ana)).json()
    assert [user["id"] for user in newest["users"]] == ["mia"]


async def test_the_routes_of_users(social: Social, http: httpx.AsyncClient, ana: Actor, bob: Actor) -> None:
    as_ana, as_admin = social.token(ana), social.token(ADMIN)
    followed = await http.post("/users/bob/follow", headers=as_ana)
    assert followed.json() == {"id": "bob", "username": "bob", "kind": "follow", "on": True, "changed": True}
    assert [user["id"] for user in (await http.get("/users/bob/followers")).json()["users"]] == ["ana"]
    assert [user["id"] for user in (await http.get("/users/me/following", headers=as_ana)).json()["users"]] == ["bob"]
    assert (await http.delete("/users/bob/follow", headers=as_ana)).json()["changed"] is True
    assert (await http.post("/users/bob/mute", headers=as_ana)).status_code == 200
    assert [user["id"] for user in (await http.get("/users/me/muted", headers=as_ana)).json()["users"]] == ["bob"]
    assert (await http.delete("/users/bob/mute", headers=as_ana)).status_code == 200
    assert (await http.post("/users/bob/block", headers=as_ana)).status_code == 200
    assert [user["id"] for user in (await http.get("/users/me/blocked", headers=as_ana)).json()["users"]] == ["bob"]
    assert (await http.get("/users/bob", headers=as_ana)).status_code == 404
    assert (await http.delete("/users/bob/block", headers=as_ana)).status_code == 200
    given = await http.patch("/users/bob/role", json={"role": "model"}, headers=as_admin)
    assert given.json()["role"] == "model"


REFUSED: list[tuple[str, str, Any, int]] = [
    ("POST", "/posts", {"content": ""}, 422),
    ("POST", "/posts", {"content": "x" * 100_000}, 422),
    ("POST", "/posts", {"content": " ".join(f"#t{i}" for i in range(31))}, 422),
    ("POST", "/posts", {"content": "x", "likesCount": 5}, 422),
    ("POST", "/posts", {"content": "x", "media_url": "javascript:x"}, 422),
    ("POST", "/posts", {"content": "x", "media_url": "//evil.example/x"}, 422),
    ("POST", "/posts", {"content": "x", "media_url": "/\\evil.example/x"}, 422),
    ("GET", "/posts/1", None, 422),
    ("GET", f"/posts/{NO_POST}", None, 404),
    ("PATCH", f"/posts/{NO_POST}", {"content": "x"}, 404),
    ("DELETE", f"/posts/{NO_POST}", None, 404),
    ("POST", f"/posts/{NO_POST}/like", None, 404),
    ("DELETE", f"/posts/{NO_POST}/like", None, 404),
    ("POST", f"/posts/{NO_POST}/bookmark", None, 404),
    ("DELETE", f"/posts/{NO_POST}/bookmark", None, 404),
    ("POST", f"/posts/{NO_POST}/comments", {"content": "x"}, 404),
    ("POST", f"/posts/{NO_POST}/comments", {"content": "\u0000"}, 422),
    ("DELETE", f"/comments/{NO_POST}", None, 404),
    ("PATCH", f"/posts/{NO_POST}/ban", None, 403),
    ("DELETE", f"/posts/{NO_POST}/ban", None, 403),
    ("POST", "/users/ana/follow", None, 422),
    ("POST", "/users/me/block", None, 422),
    ("POST", "/users/missing/follow", None, 404),
    ("GET", "/users/missing", None, 404),
    ("GET", "/users/missing/posts", None, 404),
    ("GET", "/users/bob/bookmarked", None, 403),
    ("PATCH", "/users/ana/role", {"role": "admin"}, 403),
    ("PUT", "/users/bob/suspension", None, 403),
    ("DELETE", "/users/bob/suspension", None, 403),
    ("PATCH", "/users/bob", {"bio": "x"}, 403),
    ("PATCH", "/users/me", {"postCount": 5}, 422),
    ("PATCH", "/users/me", {"username": "bob"}, 422),
    ("DELETE", "/users/bob", None, 403),
    ("GET", "/feed/explore?limit=0", None, 422),
    ("GET", "/feed/explore?limit=101", None, 422),
    ("GET", "/feed/explore?cursor=nonsense", None, 422),
    ("GET", "/feed/explore?page=2", None, 422),
    ("GET", "/feed/hashtag/a-b", None, 422),
    ("GET", "/search/hashtags/top-posts?hashtags=", None, 422),
    ("GET", "/search/hashtags/top-posts?hashtags=" + ",".join(f"t{i}" for i in range(11)), None, 422),
    ("GET", "/search/hashtags/top-posts?hashtags=a&postsPerHashtag=0", None, 422),
    ("GET", "/search/hashtags/top-posts?hashtags=a&postsPerHashtag=21", None, 422),
    ("GET", "/search/users/newest?role=admin", None, 422),
]


async def test_refused_requests_change_nothing(
    social: Social, http: httpx.AsyncClient, ana: Actor, bob: Actor, assert_consistent: Any
) -> None:
    before = await assert_consistent()
    for method, path, body, status in REFUSED:
        answer = await http.request(method, path, json=body, headers=social.token(ana))
        assert answer.status_code == status, (method, path, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"
    assert await assert_consistent() == before


OPEN = (
    "GET /posts/{id}", "GET /posts/{id}/comments", "GET /users/{username}", "GET /users/{username}/posts",
    "GET /users/{username}/followers", "GET /users/{username}/following", "GET /feed/explore",
    "GET /users/{username}.atom", "GET /tags/{tag}.atom",
    "POST /auth/register", "POST /auth/passkeys/login", "POST /auth/login", "POST /auth/refresh", "POST /auth/logout",
)  # fmt: skip


async def test_anonymous_requests_are_401_except_public_reads(
    social: Social, http: httpx.AsyncClient, ana: Actor
) -> None:
    post = await social.post(ana)
    asked = 0
    for routes in DOMAIN.routes:
        for route in routes.routes:
            path = route.template.format(id=post.id, username="ana", tag="tea")
            answer = await http.request(route.method, path)
            assert (answer.status_code == 401) != (f"{route.method} {route.template}" in OPEN), (path, answer.text)
            asked += 1
    assert asked > 50
    assert (await http.get("/users/me")).status_code == 401


async def test_the_api_key_has_no_user_and_stores_nothing(
    social: Social, http: httpx.AsyncClient, ana: Actor, assert_consistent: Any
) -> None:
    post = await social.post(ana)
    before, key = await assert_consistent(), social.token(API)
    for method, path, body in (
        ("POST", "/posts", {"content": "x"}),
        ("POST", f"/posts/{post.id}/like", None),
        ("POST", f"/posts/{post.id}/bookmark", None),
        ("POST", f"/posts/{post.id}/comments", {"content": "x"}),
        ("POST", "/users/ana/follow", None),
        ("POST", "/users/ana/block", None),
        ("POST", "/users/ana/mute", None),
        ("GET", "/feed/following", None),
        ("GET", "/users/me/export", None),
    ):
        assert (await http.request(method, path, json=body, headers=key)).status_code == 403, path
    assert (await http.get("/feed/explore", headers=key)).status_code == 200
    assert await assert_consistent() == before


async def test_an_idempotency_key_creates_one_post_a_day(
    social: Social, http: httpx.AsyncClient, ana: Actor, redis_client: Any, assert_consistent: Any
) -> None:
    headers = social.token(ana) | {"idempotency-key": "one"}
    first = await http.post("/posts", json={"content": "once"}, headers=headers)
    again = await http.post("/posts", json={"content": "once"}, headers=headers)
    assert first.json() == again.json()
    assert len((await assert_consistent())["post"]) == 1
    assert (await http.post("/posts", json={"content": "other"}, headers=headers)).status_code == 422
    for content in ("once", "other"):
        social.clock.advance(days=1)
        for name in [name async for name in redis_client.scan_iter("idempotency:*")]:
            await redis_client.delete(name)  # as Valkey does after a day
        headers |= social.token(ana)
        again = await http.post("/posts", json={"content": content}, headers=headers)
        assert (again.status_code, again.json()["content"]) == (201, content)
    assert len((await assert_consistent())["post"]) == 3
