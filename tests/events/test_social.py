"""Each operation of social emits its event; one that changes nothing emits none."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from plaza.app import Plaza
from plaza.core.auth import API, Actor
from plaza.core.event_streams import all_streams
from plaza.keyspace.proxy.service import Proxy
from plaza.social import keys as k
from plaza.social.account_deletion import AccountDeletion
from plaza.social.account_renaming import AccountRenaming
from plaza.social.accounts import Accounts
from plaza.social.bulk_import import BulkImport
from plaza.social.comments import Comments
from plaza.social.engagements import Engagements
from plaza.social.events import EVENTS
from plaza.social.inbound_sync import CommentRecord, FollowRecord, InboundSync, MarkRecord, PostRecord
from plaza.social.model import CommentEdit, NewComment, NewPost, PostEdit, Profile, Registration
from plaza.social.posts import Posts
from plaza.social.relations import Relations
from plaza.social.users import Users
from tests.events.recorder import PRIVATE, EventRecorder
from tests.social.conftest import trips

ANA, BEN, ROOT = Actor("ana", "user"), Actor("ben", "user"), Actor("root", "admin")
POSTS = [f"00000000-0000-4000-8000-00000000000{n}" for n in range(2)]
COMMENTS = [f"00000000-0000-4000-9000-00000000000{n}" for n in range(2)]
TEXT = f"Hello #{PRIVATE}"


@pytest.fixture
async def recorder(plaza: Plaza, redis_client: Any) -> EventRecorder:
    """A recorder, after ana and ben have profiles."""
    recorder = EventRecorder(plaza, redis_client)
    await plaza.get(InboundSync).apply("user", [{"username": "ana"}, {"username": "ben"}])
    await recorder.expect(
        ("user.registered", {"username": "ana"}), ("user.registered", {"username": "ben"}), origin="import"
    )
    return recorder


async def test_every_type_is_emitted(plaza: Plaza, recorder: EventRecorder) -> None:
    await check_users(plaza, recorder)
    await check_posts(plaza, recorder)
    await check_comments(plaza, recorder)
    await check_relations(plaza, recorder)
    await check_renaming_and_deletion(plaza, recorder)
    assert recorder.types == {event_type.type for event_type in EVENTS}


async def check_users(plaza: Plaza, recorder: EventRecorder) -> None:
    users = plaza.get(Users)
    await plaza.get(Accounts).register(Registration(username="cleo", password="correct horse battery", bio=PRIVATE))
    await recorder.expect(("user.registered", {"username": "cleo"}))
    await users.update_profile(ANA, "ana", Profile(bio=TEXT))
    await recorder.expect(("user.updated", {"username": "ana"}))
    await users.update_profile(ANA, "ana", Profile(bio=TEXT))
    await recorder.expect()
    await users.set_role(ROOT, "ana", "model")
    await recorder.expect(("user.role_changed", {"username": "ana", "role": "model"}))
    for on, kind in ((True, "user.suspended"), (False, "user.unsuspended")):
        for _ in range(2):
            await users.suspend(ROOT, "cleo", on=on)
        await recorder.expect((kind, {"username": "cleo"}))


async def check_posts(plaza: Plaza, recorder: EventRecorder) -> None:
    posts, engagements = plaza.get(Posts), plaza.get(Engagements)
    post = (await posts.create(ANA, NewPost(TEXT))).id
    data = {"post": post, "author": "ana"}
    await recorder.expect(("post.created", data))
    for _ in range(2):
        await posts.edit(ANA, post, PostEdit(f"{TEXT}!"))
    await recorder.expect(("post.edited", data))
    for _ in range(2):
        await engagements.like(BEN, post)
    await recorder.expect(("post.liked", {**data, "username": "ben"}))
    for _ in range(2):
        await engagements.unlike(BEN, post)
    await recorder.expect(("post.unliked", {**data, "username": "ben"}))
    await engagements.bookmark(BEN, post)
    await recorder.expect()
    for on, kind in ((True, "post.banned"), (False, "post.unbanned")):
        for _ in range(2):
            await posts.ban(ROOT, post, on=on)
        await recorder.expect((kind, data))
    await engagements.like(BEN, post)
    await recorder.new_events()
    await posts.delete(ANA, post)
    await recorder.expect(("post.deleted", data))  # its like ends with it


async def check_comments(plaza: Plaza, recorder: EventRecorder) -> None:
    comments = plaza.get(Comments)
    post = (await plaza.get(Posts).create(ANA, NewPost(TEXT))).id
    await recorder.new_events()
    comment = (await comments.create(BEN, post, NewComment(TEXT))).id
    data = {"comment": comment, "post": post, "author": "ana", "username": "ben"}
    await recorder.expect(("comment.created", data))
    for _ in range(2):
        await comments.edit(BEN, comment, CommentEdit(f"{TEXT}!"))
    await recorder.expect(("comment.edited", {"comment": comment, "post": post, "username": "ben"}))
    await comments.delete(BEN, comment)
    await recorder.expect(("comment.deleted", data))


async def check_relations(plaza: Plaza, recorder: EventRecorder) -> None:
    relations = plaza.get(Relations)
    one, other = {"follower": "ana", "followed": "ben"}, {"follower": "ben", "followed": "ana"}
    for _ in range(2):
        await relations.follow(ANA, "ben")
    await recorder.expect(("user.followed", one))
    for _ in range(2):
        await relations.unfollow(ANA, "ben")
    await recorder.expect(("user.unfollowed", one))
    await relations.follow(ANA, "ben")
    await relations.follow(BEN, "ana")
    await recorder.new_events()
    await relations.mute(ANA, "ben")
    await relations.block(ANA, "ben")  # ends both follows, and is itself private
    await recorder.expect(("user.unfollowed", one), ("user.unfollowed", other))
    await relations.unblock(ANA, "ben")
    await relations.unmute(ANA, "ben")
    await recorder.expect()


async def check_renaming_and_deletion(plaza: Plaza, recorder: EventRecorder) -> None:
    post = (await plaza.get(Posts).create(BEN, NewPost(TEXT))).id
    await plaza.get(Engagements).like(ANA, post)
    await plaza.get(Relations).follow(ANA, "ben")
    await recorder.new_events()
    await plaza.get(AccountRenaming).rename("ana", "zoe")
    events = await recorder.new_events()
    assert {(event.type, event.origin) for event in events} == {
        ("user.followed", "rename"),
        ("user.unfollowed", "rename"),
        ("post.liked", "rename"),
        ("post.unliked", "rename"),
        ("user.renamed", ""),
    }
    assert [event.data for event in events if event.type == "user.renamed"] == [{"old": "ana", "new": "zoe"}]
    await plaza.get(AccountDeletion).delete(ROOT, "zoe")
    found = [event for event in await recorder.new_events() if event.type != "post.deleted"]  # those of other checks
    assert {event.type for event in found} == {"user.deleted", "user.unfollowed", "post.unliked"}
    assert len(found) == 3


async def test_imports_are_marked(plaza: Plaza, recorder: EventRecorder) -> None:
    sync, bulk_import = plaza.get(InboundSync), BulkImport(plaza.get(InboundSync))
    posts = [{"id": POSTS[0], "username": "ana", "content": TEXT}]
    likes = [{"username": "ben", "post_id": POSTS[0]}]
    comments = [{"id": COMMENTS[0], "username": "ben", "post_id": POSTS[0], "content": TEXT}]
    for _ in range(2):  # a second time changes nothing
        await sync.apply("post", posts)
        await sync.apply("like", likes)
        await sync.apply("comment", comments)
        await sync.apply("follow", [{"follower": "ana", "following": "ben"}])
    data = {"post": POSTS[0], "author": "ana"}
    await recorder.expect(
        ("post.created", data),
        ("post.liked", {**data, "username": "ben"}),
        ("comment.created", {**data, "comment": COMMENTS[0], "username": "ben"}),
        ("user.followed", {"follower": "ana", "followed": "ben"}),
        origin="import",
    )
    await sync.apply("post", [{"id": POSTS[0], "username": "ana", "content": f"{TEXT}!"}])
    await sync.apply("user", [{"username": "ana", "role": "model", "bio": TEXT}])
    await recorder.expect(
        ("post.edited", data),
        ("user.updated", {"username": "ana"}),
        ("user.role_changed", {"username": "ana", "role": "model"}),
        origin="import",
    )
    for _ in range(2):
        record, data = PostRecord(POSTS[1], "ana", TEXT), {"post": POSTS[1], "author": "ana"}
        await bulk_import.import_post(
            record, [MarkRecord("ben", POSTS[1])], [CommentRecord(COMMENTS[1], POSTS[1], "ben", TEXT)]
        )
        await bulk_import.import_follows("ben", [FollowRecord("ben", "ana")])
    await recorder.expect(
        ("post.created", data),
        ("post.liked", {**data, "username": "ben"}),
        ("comment.created", {**data, "comment": COMMENTS[1], "username": "ben"}),
        ("user.followed", {"follower": "ben", "followed": "ana"}),
        origin="import",
    )


async def test_what_another_service_writes_is_announced_when_it_is_indexed(
    plaza: Plaza, recorder: EventRecorder, redis_client: Any
) -> None:
    engagements, relations = plaza.get(Engagements), plaza.get(Relations)
    post = (await plaza.get(Posts).create(ANA, NewPost(TEXT))).id
    await recorder.new_events()
    await redis_client.sadd(k.POST_LIKES(post), "ben")
    await redis_client.sadd(k.USER_FOLLOWING("ana"), "ben")
    await engagements.like(BEN, post)
    await relations.follow(ANA, "ben")
    await recorder.expect(
        ("post.liked", {"post": post, "author": "ana", "username": "ben"}),
        ("user.followed", {"follower": "ana", "followed": "ben"}),
    )


async def test_a_profile_that_is_written_through_the_proxy_is_announced(plaza: Plaza, recorder: EventRecorder) -> None:
    async def write(actor: Actor, *commands: list[str]) -> None:
        await plaza.get(Proxy).run(actor, "127.0.0.1", commands)

    updated = ("user.updated", {"username": "ana"})
    await write(ANA, ["HSET", "user:me", "bio", TEXT], ["HSET", "user:me", "links", TEXT, "email", "a@mail.example"])
    await recorder.expect(updated)
    await plaza.get(Proxy).transact(ANA, "127.0.0.1", [["HDEL", "user:me", "bio"]])
    await recorder.expect(updated)
    await write(API, ["HSET", "user:ana", "bio", TEXT])
    await recorder.expect(updated)
    await write(
        ANA, ["HSET", "user:me", "theme", "dark"], ["HSET", "user:me", "role", "admin"], ["HGET", "user:me", "bio"]
    )
    await write(Actor("zoe", "user"), ["HSET", "user:me", "bio", TEXT])
    await recorder.expect()  # custom and refused fields, reads, and users without a profile


async def test_a_write_through_the_proxy_has_its_result_although_its_event_cannot_be_emitted(
    plaza: Plaza, recorder: EventRecorder, redis_client: Any
) -> None:
    if plaza.core.valkey.clustered:
        return
    (stream,) = all_streams("social")
    await redis_client.delete(stream.key)
    await redis_client.set(stream.key, "another type")
    commands = [["HSET", "user:me", "bio", TEXT], ["HINCRBY", "user:me", "visits", "1"]]
    with capture_logs() as logs:
        assert await plaza.get(Proxy).run(ANA, "127.0.0.1", commands) == [1, 1]
        assert await plaza.get(Proxy).transact(ANA, "127.0.0.1", commands) == [0, 2]
    assert [line["owners"] for line in logs if line["event"] == "proxy_write_not_announced"] == [["ana"], ["ana"]]


async def test_profiles_that_are_written_together_are_announced_together(plaza: Plaza, recorder: EventRecorder) -> None:
    commands = [["HSET", f"user:{name}", "bio", TEXT] for name in ("ana", "ben")]
    one = await trips(plaza.get(Proxy).run(API, "127.0.0.1", commands[:1]))
    await recorder.expect(("user.updated", {"username": "ana"}))
    two = await trips(plaza.get(Proxy).run(API, "127.0.0.1", commands))
    await recorder.expect(("user.updated", {"username": "ana"}), ("user.updated", {"username": "ben"}))
    if not plaza.core.valkey.clustered:
        assert one == two
