"""Replies: a tree of comments below a post, in pages, with stubs for what was deleted."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from plaza.core.auth import Actor
from plaza.core.comment_tree import TOP_LEVEL
from plaza.core.errors import Forbidden, Invalid, NotFound
from plaza.core.paging import Page
from plaza.social import keys as k
from plaza.social.model import Comment, CommentEdit, NewComment, NewPost
from tests.round_trips import count_round_trips
from tests.social.conftest import ADMIN, Social
from tests.social.consistency import Keyspace

Consistent = Callable[[], Awaitable[Keyspace]]
POST = "11111111-2222-4333-8444-555555555555"


def comment_id(number: int) -> str:
    return f"{number:08x}-2222-4333-8444-555555555555"


async def say(social: Social, actor: Actor, post: str, text: str = "hi", to: Comment | None = None) -> Comment:
    social.clock.advance(seconds=1)
    return await social.comments.create(actor, post, NewComment(text, to.id if to else None))


async def level(social: Social, viewer: Actor, post: str, reply_to: str | None) -> list[str]:
    """The ids on one level, by pages of two."""
    found, cursor = [], None
    while True:
        page = await social.comments.page(viewer, post, Page(limit=2, cursor=cursor), reply_to)
        found += [comment.id for comment in page.items]
        cursor = page.pagination.next_cursor
        if cursor is None:
            return found


async def test_replies_are_paged_by_level_and_all_comments_stay_oldest_first(
    social: Social, ana: Actor, bob: Actor, assert_consistent: Consistent
) -> None:
    post = (await social.post(ana)).id
    first = await say(social, ana, post)
    replies = [await say(social, bob, post, to=first) for _ in range(3)]
    second = await say(social, ana, post)
    deeper = await say(social, ana, post, to=replies[0])
    assert (deeper.reply_to, deeper.repliesCount) == (replies[0].id, 0)
    assert await level(social, bob, post, TOP_LEVEL) == [first.id, second.id]
    assert await level(social, bob, post, first.id) == [reply.id for reply in replies]
    assert await level(social, bob, post, deeper.id) == []
    assert await level(social, bob, post, None) == [c.id for c in (first, *replies, second, deeper)]
    shown = (await social.comments.page(bob, post, Page())).items
    assert [comment.repliesCount for comment in shown] == [3, 1, 0, 0, 0, 0]
    assert await social.valkey.call("LRANGE", k.POST_COMMENTS(post), 0, -1) == [comment.id for comment in shown]
    assert (await social.posts.get(ana, post)).commentsCount == 6
    await assert_consistent()


async def test_a_post_without_replies_has_no_thread_keys_and_is_one_level(
    social: Social, ana: Actor, assert_consistent: Consistent
) -> None:
    post = (await social.post(ana)).id
    said = [await say(social, ana, post) for _ in range(3)]
    assert await level(social, ana, post, TOP_LEVEL) == [comment.id for comment in said]
    keyspace = await assert_consistent()
    assert not keyspace["post_comments_top"]
    assert not keyspace["post_comment_parents"]
    await social.comments.delete(ana, (await say(social, ana, post, to=said[0])).id)
    keyspace = await assert_consistent()
    assert not keyspace["post_comments_top"]
    assert not keyspace["post_comment_parents"]


async def test_only_a_visible_comment_of_the_same_post_can_be_replied_to(
    social: Social, ana: Actor, bob: Actor
) -> None:
    post, other = (await social.post(ana)).id, (await social.post(ana)).id
    elsewhere, bobs = await say(social, bob, other), await say(social, bob, post)
    deleted = await say(social, bob, post)
    await social.comments.delete(bob, deleted.id)
    cleo = await social.create_user("cleo")
    await social.relations.block(cleo, "bob")
    for actor, to in ((ana, elsewhere), (ana, deleted), (cleo, bobs)):
        with pytest.raises(Invalid) as refused:
            await say(social, actor, post, to=to)
        assert refused.value.extra["field"] == "reply_to"
    with pytest.raises(Invalid) as refused:
        await social.comments.page(ana, post, Page(), elsewhere.id)
    assert refused.value.extra["field"] == "reply_to"
    assert (await social.posts.get(ana, post)).commentsCount == 1


async def test_a_deleted_comment_with_replies_leaves_a_stub_until_the_last_reply_goes(
    social: Social, ana: Actor, bob: Actor, assert_consistent: Consistent
) -> None:
    post = (await social.post(ana)).id
    root = await say(social, bob, post, "secret")
    middle = await say(social, bob, post, "secret too", root)
    leaf = await say(social, ana, post, to=middle)
    for comment in (root, middle):
        await social.comments.delete(bob, comment.id)
    shown = (await social.comments.page(ana, post, Page())).items
    assert [(c.id, c.username, c.content, c.deleted, c.reply_to, c.repliesCount) for c in shown] == [
        (root.id, "", "", True, None, 1),
        (middle.id, "", "", True, root.id, 1),
        (leaf.id, "ana", "hi", None, middle.id, 0),
    ]
    assert (await social.posts.get(ana, post)).commentsCount == 1
    assert await social.valkey.call("LRANGE", k.POST_COMMENTS(post), 0, -1) == [leaf.id]
    assert not await social.valkey.call("EXISTS", k.COMMENT(root.id))
    with pytest.raises(NotFound):
        await social.comments.delete(bob, root.id)
    await assert_consistent()
    await social.comments.delete(ana, leaf.id)
    assert (await social.comments.page(ana, post, Page())).items == []
    keyspace = await assert_consistent()
    assert not keyspace["post_comment_stubs"]
    assert not keyspace["post_comments_top"]


async def test_an_edit_keeps_the_old_text_and_only_the_author_edits(
    social: Social, ana: Actor, bob: Actor, redis_client: Any
) -> None:
    post = (await social.post(ana)).id
    comment = await say(social, bob, post, "first")
    await say(social, ana, post, to=comment)
    social.clock.advance(seconds=1)
    edited = await social.comments.edit(bob, comment.id, CommentEdit("second"))
    assert (edited.content, edited.edited_at, edited.repliesCount) == ("second", social.clock.now_ms(), 1)
    await social.comments.edit(bob, comment.id, CommentEdit("second"))
    (old,) = await redis_client.lrange(k.COMMENT_EDITS(comment.id), 0, -1)
    assert '"first"' in old
    for actor in (ana, ADMIN):
        with pytest.raises(Forbidden):
            await social.comments.edit(actor, comment.id, CommentEdit("third"))
    await social.comments.delete(bob, comment.id)
    assert not await redis_client.exists(k.COMMENT_EDITS(comment.id))
    with pytest.raises(NotFound):
        await social.comments.edit(bob, comment.id, CommentEdit("third"))


async def test_a_late_projection_of_the_first_text_does_not_undo_an_edit(social: Social, ana: Actor) -> None:
    post = (await social.post(ana)).id
    comment = await social.comments.create(ana, post, NewComment("first"), "0" * 32)
    social.clock.advance(seconds=1)
    await social.comments.edit(ana, comment.id, CommentEdit("second"))
    social.clock.advance(seconds=1)
    again = await social.comments.create(ana, post, NewComment("first"), "0" * 32)
    assert again.content == "second"


THREAD = 10_000


async def seed_thread(social: Social, parent_of: Callable[[int], int]) -> list[str]:
    """Write a thread of 10,000 comments as Plaza stores it. All but the first reply to another one."""
    ids = [comment_id(number) for number in range(THREAD)]
    parents = {ids[i]: ids[parent_of(i)] for i in range(1, THREAD)}
    scored = [part for i, id in enumerate(ids) for part in (1_000 + i, id)]
    await social.posts.create(Actor("ana", "user"), NewPost("hello"), POST.replace("-", ""))
    await social.valkey.batch(
        [
            ("RPUSH", k.POST_COMMENTS(POST), *ids),
            ("ZADD", k.POST_COMMENTS_RECENT(POST), *scored),
            ("HSET", k.POST_COMMENT_PARENTS(POST), *(part for pair in parents.items() for part in pair)),
            ("ZADD", k.POST_COMMENTS_TOP(POST), 1_000, ids[0]),
            *(
                ("ZADD", k.POST_COMMENT_REPLIES(POST, to), 1_000 + i, id)
                for i, (id, to) in enumerate(parents.items(), 1)
            ),
            *(
                ("HSET", k.COMMENT(id), "id", id, "post_id", POST, "username", "ana", "content", "hi", "created_at", 1)
                for id in (*ids[:200], *ids[-2:])
            ),
        ]
    )
    return ids


@pytest.mark.parametrize("shape", ["deep", "wide"])
async def test_a_thread_of_ten_thousand_comments_is_read_and_changed_in_bounded_steps(
    social: Social, ana: Actor, shape: str
) -> None:
    ids = await seed_thread(social, lambda i: i - 1 if shape == "deep" else 0)
    post, limit = POST, 5 if social.valkey.clustered else 4
    before = await count_commands(social)
    shown = await social.comments.page(ana, post, Page(limit=100), ids[0])
    # A hash and a reply count for each comment, and a few commands for the page: nothing grows with the thread.
    assert await count_commands(social) - before <= 4 * len(shown.items) + 60
    assert len(shown.items) == (1 if shape == "deep" else 100)
    for reply_to in (None, TOP_LEVEL, ids[0], ids[-2]):
        page = social.comments.page(ana, post, Page(limit=100), reply_to)
        assert await count_round_trips(social.valkey, page) <= limit
    before = await count_commands(social)
    write = social.comments.create(ana, post, NewComment("hi", ids[-1]))
    assert await count_round_trips(social.valkey, write) <= (5 if social.valkey.clustered else 1)
    await social.functions.outbox.drain()
    await social.comments.delete(ana, ids[1])
    assert await count_commands(social) - before <= 200
    top = await social.comments.page(ana, post, Page(), TOP_LEVEL)
    assert [comment.id for comment in top.items] == [ids[0]]


async def count_commands(social: Social) -> int:
    """The number of commands that all servers have processed, those in functions too."""
    sections = await asyncio.gather(*(node.call("INFO", "commandstats") for node in social.valkey.primaries()))
    return sum(int(calls) for section in sections for calls in re.findall(r"calls=(\d+)", str(section)))


async def test_a_long_chain_of_deleted_comments_disappears_in_batches(
    social: Social, ana: Actor, assert_consistent: Consistent
) -> None:
    post = (await social.post(ana)).id
    said: list[Comment] = []
    for _ in range(120):
        said.append(await social.comments.create(ana, post, NewComment("hi", said[-1].id if said else None)))
    await asyncio.gather(*(social.comments.remove(comment.id, post, "ana") for comment in said[:-1]))
    assert len((await assert_consistent())["post_comment_stubs"][post,]) == 119
    await social.comments.remove(said[-1].id, post, "ana")
    keyspace = await assert_consistent()
    assert not keyspace["post_comment_stubs"]
    assert not keyspace["post_comment_parents"]


async def test_replies_and_deletions_at_once_leave_a_consistent_tree(
    social: Social, ana: Actor, bob: Actor, assert_consistent: Consistent
) -> None:
    post, chance = (await social.post(ana)).id, random.Random(7)
    known = [await say(social, ana, post) for _ in range(5)]

    async def write() -> None:
        target = chance.choice(known)
        try:
            if chance.random() < 0.4:
                await social.comments.delete(ADMIN, target.id)
            else:
                known.append(await say(social, bob, post, to=target))
        except (Invalid, NotFound):
            pass  # deleted meanwhile

    for _ in range(10):
        await asyncio.gather(*(write() for _ in range(20)))
    await assert_consistent()
    await social.posts.delete(ana, post)
    keyspace = await assert_consistent()
    assert not any(keyspace[name] for name in keyspace if name.startswith(("post_comment", "comment")))


async def test_an_account_deletion_leaves_stubs_without_name_and_text(
    social: Social, ana: Actor, bob: Actor, assert_consistent: Consistent
) -> None:
    post = (await social.post(ana)).id
    root = await say(social, bob, post, "bob was here")
    await social.comments.edit(bob, root.id, CommentEdit("bob is here"))
    reply = await say(social, ana, post, to=root)
    await social.deletion.delete(ADMIN, "bob")
    (stub, left) = (await social.comments.page(ana, post, Page())).items
    assert (stub.id, stub.deleted, stub.username) == (root.id, True, "")
    assert (left.id, left.reply_to) == (reply.id, root.id)
    keyspace = await assert_consistent()
    assert " here" not in str(keyspace)


async def test_another_service_that_removes_a_comment_leaves_a_stub(
    social: Social, ana: Actor, redis_client: Any
) -> None:
    post = (await social.post(ana)).id
    root = await say(social, ana, post)
    reply = await say(social, ana, post, to=root)
    await redis_client.lrem(k.POST_COMMENTS(post), 1, root.id)
    await redis_client.delete(k.COMMENT(root.id))
    shown = (await social.comments.page(ana, post, Page())).items
    assert [(comment.id, comment.deleted) for comment in shown] == [(root.id, True), (reply.id, None)]


async def test_sync_keeps_replies_and_changes_nothing_the_second_time(
    social: Social, ana: Actor, assert_consistent: Consistent
) -> None:
    post = (await social.post(ana)).id
    root = {"id": comment_id(1), "post_id": post, "username": "ana", "content": "a", "created_at": 1_000}
    reply = {**root, "id": comment_id(2), "content": "b", "created_at": 2_000, "reply_to": root["id"]}
    early = {**reply, "id": comment_id(3), "reply_to": comment_id(9)}
    for status in ("created", "unchanged"):
        results = await social.sync.apply("comment", [root, reply, early])
        assert [result.status for result in results] == [status, status, "error"]
        assert results[2].field == "reply_to"
    moved = {**reply, "created_at": 3_000, "content": "c"}
    (result,) = await social.sync.apply("comment", [moved])
    assert result.status == "updated"
    shown = await social.comments.page(ana, post, Page(), comment_id(1))
    assert [(c.content, c.created_at) for c in shown.items] == [("c", 3_000)]
    assert (await social.sync.apply("comment", [{**reply, "reply_to": comment_id(2)}]))[0].field == "reply_to"
    await assert_consistent()


async def test_routes_reply_list_and_edit(social: Social, ana: Actor, http: httpx.AsyncClient) -> None:
    post, headers = (await social.post(ana)).id, social.token(ana)
    root = (await http.post(f"/posts/{post}/comments", json={"content": "a"}, headers=headers)).json()
    assert (root["reply_to"], root["repliesCount"]) == (None, 0)
    body = {"content": "b", "reply_to": root["id"]}
    reply = (await http.post(f"/posts/{post}/comments", json=body, headers=headers)).json()
    listed = (await http.get(f"/posts/{post}/comments", params={"reply_to": root["id"]})).json()
    assert listed["comments"] == [reply]
    edited = await http.patch(f"/comments/{reply['id']}", json={"content": "c"}, headers=headers)
    assert edited.json()["content"] == "c"
    assert edited.json()["edited_at"] == social.clock.now_ms()
    body = {"content": "b", "reply_to": comment_id(9)}
    refused = await http.post(f"/posts/{post}/comments", json=body, headers=headers)
    assert (refused.status_code, refused.json()["field"]) == (422, "reply_to")
