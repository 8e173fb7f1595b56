"""Pictures of posts: up to four, visible exactly while a visible post shows them."""

from __future__ import annotations

import json
from typing import Any

from plaza.app import Plaza
from plaza.social.keys import POST
from tests.http_servers import is_problem
from tests.media.conftest import PictureUser, many
from tests.media.images import picture


async def test_a_post_has_its_pictures_with_their_texts(ana: PictureUser, redis_client: Any) -> None:
    one, two = await ana.upload(alt="One"), await ana.upload(alt="Two")
    post = await ana.json("POST", "/posts", 201, content="Look", media=[one["id"], {"id": two["id"], "alt": "Better"}])
    assert post["media"] == [one, {**two, "alt": "Better"}]
    assert post["media_url"] == f"/media/{one['id']}/large"
    fields = await redis_client.hgetall(POST(post["id"]))
    assert fields["media_url"] == f"/media/{one['id']}/large"
    assert [each["id"] for each in json.loads(fields["media"])] == [one["id"], two["id"]]
    assert await ana.json("GET", f"/posts/{post['id']}") == post
    listed = (await ana.json("GET", "/users/ana/posts"))["posts"][0]["post"]
    assert listed == post


async def test_the_callers_media_url_stays(ana: PictureUser) -> None:
    id = (await ana.upload())["id"]
    post = await ana.json("POST", "/posts", 201, content="x", media=[id], media_url="https://example.org/film.mp4")
    assert post["media_url"] == "https://example.org/film.mp4"
    assert [each["id"] for each in post["media"]] == [id]


async def test_a_post_without_pictures_has_no_such_field(ana: PictureUser) -> None:
    assert "media" not in await ana.json("POST", "/posts", 201, content="x")


async def test_wrong_pictures_are_refused_and_nothing_is_posted(ana: PictureUser, ben: PictureUser) -> None:
    mine, others = (await ana.upload())["id"], (await ben.upload())["id"]
    missing = "00000000-0000-4000-8000-000000000000"
    for media, field in (
        ([mine, others], "media[1]"),
        ([missing], "media[0]"),
        ([mine, mine], "media"),
        ([mine] * 5, "media"),
        (["x"], "media[0]"),
        ([{"id": mine, "title": "x"}], "media[0].title"),
    ):
        answer = await ana.call("POST", "/posts", 422, json={"content": "x", "media": media})
        assert is_problem(answer, 422, "invalid")["field"] == field
    assert (await ana.json("GET", "/users/ana/posts"))["posts"] == []


async def test_a_picture_is_visible_while_its_post_is(ana: PictureUser, guest: PictureUser, api: PictureUser) -> None:
    id = (await ana.upload())["id"]
    assert not await guest.sees(id)
    post = (await ana.json("POST", "/posts", 201, content="x", media=[id]))["id"]
    assert await guest.sees(id)
    await api.json("PATCH", f"/posts/{post}/ban")
    assert [await user.sees(id) for user in (guest, ana, api)] == [False, False, True]
    await api.call("DELETE", f"/posts/{post}/ban")
    assert await guest.sees(id)
    await ana.call("DELETE", f"/posts/{post}")
    assert not await guest.sees(id)


async def test_a_ban_hides_one_users_picture_and_not_the_same_one_of_another(
    ana: PictureUser, ben: PictureUser, guest: PictureUser, api: PictureUser
) -> None:
    content = picture(seed=9)
    mine, others = (await ana.upload(content))["id"], (await ben.upload(content))["id"]
    post = (await ana.json("POST", "/posts", 201, content="x", media=[mine]))["id"]
    await ben.json("POST", "/posts", 201, content="y", media=[others])
    await api.json("PATCH", f"/posts/{post}/ban")
    assert [await guest.sees(id) for id in (mine, others)] == [False, True]
    await ana.call("DELETE", f"/posts/{post}")
    await ana.call("DELETE", f"/media/{mine}")
    assert await guest.sees(others)


async def test_a_picture_in_two_posts_is_visible_while_one_of_them_is(
    ana: PictureUser, guest: PictureUser, api: PictureUser
) -> None:
    id = (await ana.upload())["id"]
    first, second = [(await ana.json("POST", "/posts", 201, content=text, media=[id]))["id"] for text in ("one", "two")]
    await api.json("PATCH", f"/posts/{first}/ban")
    assert await guest.sees(id)
    await api.json("PATCH", f"/posts/{second}/ban")
    assert not await guest.sees(id)
    await api.call("DELETE", f"/posts/{first}/ban")
    assert await guest.sees(id)


async def test_deleting_a_picture_removes_it_from_its_posts(ana: PictureUser) -> None:
    one, two = (await ana.upload())["id"], (await ana.upload())["id"]
    post = (await ana.json("POST", "/posts", 201, content="x", media=[one, two]))["id"]
    await many(ana.call("DELETE", f"/media/{one}"), ana.json("PATCH", f"/posts/{post}", content="edited"))
    left = await ana.json("GET", f"/posts/{post}")
    assert ([each["id"] for each in left["media"]], left["media_url"]) == ([two], f"/media/{two}/large")
    await ana.call("DELETE", f"/media/{two}")
    left = await ana.json("GET", f"/posts/{post}")
    assert ("media" in left, left["media_url"]) == (False, None)


async def test_a_picture_that_is_deleted_while_it_is_posted_is_shown_nowhere(
    ana: PictureUser, guest: PictureUser
) -> None:
    for _ in range(3):
        id = (await ana.upload())["id"]
        *posts, avatar, _ = await many(
            *(ana.call("POST", "/posts", None, json={"content": "x", "media": [id]}) for _ in range(4)),
            ana.call("PUT", "/users/me/avatar", None, json={"media": id}),
            ana.call("DELETE", f"/media/{id}"),
        )
        assert {response.status_code for response in (*posts, avatar)} <= {200, 201, 422}
        for response in posts:
            if response.status_code == 201:
                shown = await guest.json("GET", f"/posts/{response.json()['id']}")
                assert (shown.get("media", []), shown["media_url"] or "") == ([], "")
        assert id not in ((await guest.json("GET", "/users/ana"))["avatar"] or "")


async def test_a_repeated_request_makes_one_post_with_its_pictures(ana: PictureUser) -> None:
    id = (await ana.upload())["id"]
    body = {"content": "x", "media": [id]}
    answers = [await ana.call("POST", "/posts", 201, json=body, headers={"idempotency-key": "k"}) for _ in range(2)]
    assert answers[0].json() == answers[1].json()


async def test_what_another_service_writes_into_the_field_is_survived(ana: PictureUser, redis_client: Any) -> None:
    id = (await ana.upload())["id"]
    post = (await ana.json("POST", "/posts", 201, content="x", media=[id]))["id"]
    for odd in ("nonsense", "[]", '[{"id": 5}]', '{"id": "x"}', '[{"id": "x", "width": 0, "height": 1}]'):
        await redis_client.hset(POST(post), "media", odd)
        assert "media" not in await ana.json("GET", f"/posts/{post}")
    assert not await PictureUser(ana.http, "", {}).sees(id)


async def test_an_exported_post_has_its_pictures(plaza: Plaza, ana: PictureUser) -> None:
    uploaded = await ana.upload()
    await ana.json("POST", "/posts", 201, content="x", media=[uploaded["id"]])
    exported = await ana.json("GET", "/users/me/export")
    assert exported["social"]["posts"][0]["post"]["media"] == [uploaded]
