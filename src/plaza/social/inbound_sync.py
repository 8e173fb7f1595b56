"""Sync: copies users, follows, posts, likes, bookmarks and comments from another system.

Each record is an upsert that keeps its id and time. Each has its own result, so an invalid one does not reject the
others, and sending a batch twice changes nothing.

A follow between users who block each other is refused. Likes, bookmarks and comments of banned posts are stored; reads
leave them out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Annotated, Any, Final, Literal, TypeVar, get_args

import msgspec
from msgspec import Meta

from plaza.core.clock import Clock
from plaza.core.comment_tree import CommentText
from plaza.core.errors import Invalid, NotFound, PlazaError, Unavailable
from plaza.core.functions import Functions
from plaza.core.http.problem_details import invalid_from_msgspec
from plaza.core.number_parsing import parse_int
from plaza.core.passwords import is_supported_hash
from plaza.core.roles import Role
from plaza.core.tokens import is_username
from plaza.social import keys as k
from plaza.social.hashtags import all_tags
from plaza.social.model import (
    CommentId,
    Content,
    Millis,
    PostId,
    Profile,
    SelfRelation,
    Tag,
    Url,
    Username,
)
from plaza.social.posts import Posts
from plaza.social.private_fields import PrivateFields
from plaza.social.relations import follow_keys

MAX_RECORDS: Final = 1_000

Status = Literal["created", "updated", "unchanged", "error"]
Kind = Literal["user", "follow", "post", "like", "bookmark", "comment"]


class SyncResult(msgspec.Struct, omit_defaults=True):
    """The result of one record. An error has a reason and the field that is wrong."""

    index: int
    status: Status
    error: str | None = None
    code: str | None = None
    field: str | None = None


class SyncResults(msgspec.Struct):
    results: list[SyncResult]


class UserRecord(Profile, kw_only=True):
    username: Username
    role: Role | None = None
    created_at: Millis | None = None
    password_hash: Annotated[str, Meta(max_length=500)] | None = None


class FollowRecord(msgspec.Struct, forbid_unknown_fields=True):
    follower: Username
    following: Username
    created_at: Millis | None = None


class PostRecord(msgspec.Struct, forbid_unknown_fields=True):
    id: PostId
    username: Username
    content: Content
    media_url: Url | None = None
    hashtags: list[Tag] = []
    created_at: Millis | None = None


class MarkRecord(msgspec.Struct, forbid_unknown_fields=True):
    """A like or a bookmark."""

    username: Username
    post_id: PostId
    created_at: Millis | None = None


class CommentRecord(msgspec.Struct, forbid_unknown_fields=True):
    id: CommentId
    post_id: PostId
    username: Username
    content: CommentText
    created_at: Millis | None = None
    reply_to: CommentId | None = None


# Command replies: 2 means that only the time changed.
_STATUS: Final[dict[int, Status]] = {0: "unchanged", 1: "created", 2: "updated"}

R = TypeVar("R")

# Field names that other systems use.
ALIASES: Final = {
    "follow": {"followed": "following", "target": "following", "username": "follower"},
    "post": {"user_id": "username", "author": "username"},
    "like": {"user_id": "username", "post": "post_id"},
    "bookmark": {"user_id": "username", "post": "post_id"},
    "comment": {"user_id": "username", "author": "username", "post": "post_id"},
}


class InboundSync:
    kinds: Sequence[str] = get_args(Kind)

    def __init__(self, functions: Functions, posts: Posts, clock: Clock, private: PrivateFields) -> None:
        self.functions = functions
        self._private = private
        self.valkey = functions.valkey
        self.posts = posts
        self.clock = clock
        self._handlers: dict[str, tuple[type, Callable[[Any], Awaitable[Status]]]] = {
            "user": (UserRecord, self._user),
            "follow": (FollowRecord, self._follow),
            "post": (PostRecord, self._post),
            "like": (MarkRecord, self._like),
            "bookmark": (MarkRecord, self._bookmark),
            "comment": (CommentRecord, self._comment),
        }

    async def apply(self, kind: str, records: Sequence[Any]) -> list[SyncResult]:
        """Sync records concurrently. One round trip on one server; a few for each record on a cluster."""
        if len(records) > MAX_RECORDS:
            raise Invalid(f"A batch has at most {MAX_RECORDS} records, not {len(records)}. Send several batches.")
        shape, handler = self._handlers[kind]
        aliases, results = ALIASES.get(kind, {}), list[SyncResult]()
        for group in _without_own_replies(records):
            first = len(results)
            results += await asyncio.gather(
                *(self._one(first + i, record, aliases, shape, handler) for i, record in enumerate(group))
            )
        return results

    async def _one(
        self,
        index: int,
        record: Any,
        aliases: dict[str, str],
        shape: type[R],
        handler: Callable[[R], Awaitable[Status]],
    ) -> SyncResult:
        try:
            return SyncResult(index, await handler(_read(record, aliases, shape)))
        except Unavailable:
            raise  # the record is fine
        except PlazaError as error:
            return SyncResult(index, "error", error.detail, error.code, error.extra.get("field"))

    async def _user(self, record: UserRecord) -> Status:
        if record.password_hash is not None and not is_supported_hash(record.password_hash):
            raise Invalid("Not a supported argon2 or bcrypt hash.", field="password_hash")
        name = record.username
        given = self._private.stored(name, record.changes())
        kept = [part for field, value in given.items() if value is not None for part in (field, value)]
        gone = [field for field, value in given.items() if value is None]
        created = "" if record.created_at is None else record.created_at
        status: Status = await self.functions.run(
            "social_sync_user",
            [k.USER(name), k.AUTH_USER(name), k.USER_LEAVING(name), k.USER_RENAMING(name)],
            name, created, self.clock.now_ms(), record.role or "", record.password_hash or "",
            len(kept) // 2, *kept, *gone,
        )  # fmt: skip
        return status

    async def _follow(self, record: FollowRecord) -> Status:
        me, target = record.follower, record.following
        if me == target:
            raise SelfRelation("A user cannot follow themself.", field="following")
        mine = follow_keys(me)
        if not self.valkey.clustered:
            mine.append(k.USER(target))
        elif not await self.valkey.call("EXISTS", k.USER(target)):
            raise NotFound("No user has this name.", username=target)
        return _STATUS[await self.functions.run("social_follow", mine, me, target, *self._since(record.created_at))]

    async def _post(self, record: PostRecord) -> Status:
        tags = all_tags(record.content, record.hashtags)
        author, style = await self.posts.author_profile(record.username)
        id, created, now = record.id, await self._created(record), self.clock.now_ms()
        status: Status = await self.functions.run(
            "social_sync_post",
            [k.POST(id), k.POST_EDITS(id), k.POST_LIKES(id), k.POST_BOOKMARKS(id), k.POST_COMMENTS(id), *author],
            id, record.username, record.content, record.media_url or "", ",".join(tags), created, now, "", *style,
        )  # fmt: skip
        if status != "unchanged":
            await self.posts.store_listed_tags(id, record.content, record.hashtags, replace=status == "updated")
        return status

    async def _created(self, record: PostRecord) -> str:
        """Return the record's time; without one, the time of the existing post, or now."""
        if record.created_at is not None:
            return str(record.created_at)
        return str(await self.valkey.call("HGET", k.POST(record.id), "created_at") or self.clock.now_ms())

    async def _like(self, record: MarkRecord) -> Status:
        id, now = record.post_id, self.clock.now_ms()
        keys = [k.POST(id), k.POST_LIKES(id), k.POST_LIKES_RECENT(id)]
        since = self._since(record.created_at)
        changed, _ = await self.functions.run("social_like", keys, id, record.username, now, *since)
        return _STATUS[changed]

    async def _bookmark(self, record: MarkRecord) -> Status:
        id, name, now = record.post_id, record.username, self.clock.now_ms()
        keys = [k.USER_BOOKMARKED(name)]
        if not self.valkey.clustered:
            keys.append(k.POST(id))
        elif not await self.valkey.call("EXISTS", k.POST(id)):
            raise NotFound("No post has this id.", id=id)
        since = self._since(record.created_at)
        return _STATUS[await self.functions.run("social_bookmark", keys, name, id, now, *since)]

    async def _comment(self, record: CommentRecord) -> Status:
        id, me, now = record.post_id, record.username, self.clock.now_ms()
        fields = ("post_id", "username", "content", "created_at", "reply_to")
        known = await self.valkey.call("HMGET", k.COMMENT(record.id), *fields)
        if known[0] is not None and known[:2] != [id, me]:
            raise Invalid("A comment with this id exists on another post or by another user.", field="id")
        if known[0] is not None and record.reply_to not in (None, known[4]):
            raise Invalid("This comment exists and replies to another one. Leave `reply_to` out.", field="reply_to")
        created, source = self._since(record.created_at)
        if known[:3] == [id, me, record.content] and record.created_at in (None, parse_int(known[3])):
            return "unchanged"
        keys = [k.POST(id), k.POST_COMMENTS(id), k.POST_COMMENTS_RECENT(id)]
        if self.valkey.clustered:
            await self.posts.author_profile(me)
        else:
            keys.append(k.USER(me))
        args = id, record.id, me, record.content, created, now, record.reply_to or "", source
        created, _ = await self.functions.run("social_create_comment", keys, *args)
        return "created" if created else "updated"

    def _since(self, given: int | None) -> tuple[int, str]:
        """Return the time, and `sync_with_time` if the record has it: then it replaces a stored time. Else `sync`."""
        return (self.clock.now_ms(), "sync") if given is None else (given, "sync_with_time")


def _without_own_replies(records: Sequence[Any]) -> Iterator[list[Any]]:
    """Split records so that no comment is in one group with the comment that it replies to, which must exist first."""
    group: list[Any] = []
    ids: set[str] = set()
    for record in records:
        id, parent = (record.get("id"), record.get("reply_to")) if isinstance(record, dict) else (None, None)
        if isinstance(parent, str) and parent in ids:
            yield group
            group, ids = [], set()
        group.append(record)
        if isinstance(id, str):
            ids.add(id)
    yield group


def _read(record: Any, aliases: dict[str, str], shape: type[R]) -> R:
    """Return a record with Plaza's field names, validated."""
    if isinstance(record, dict):
        if "password" in record:
            raise Invalid("Passwords are not accepted. Send a password_hash.", field="password")
        record = {aliases.get(name, name) if aliases.get(name) not in record else name: v for name, v in record.items()}
    try:
        read = msgspec.convert(record, shape)
    except msgspec.ValidationError as error:
        raise invalid_from_msgspec(error) from None
    for field in ("username", "follower", "following"):
        if hasattr(read, field) and not is_username(getattr(read, field)):
            raise Invalid("Not a valid username.", field=field)
    return read
