"""Posts and what people do with them. Each write is one round trip on one server, checks included."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

from plaza.core.auth import Actor
from plaza.core.clock import Clock
from plaza.core.errors import Forbidden, NotFound
from plaza.core.functions import Functions
from plaza.core.paging import (
    Page,
    PageResult,
    Position,
    encode_cursor,
    ids_in_sorted_set,
    list_checksum,
    page_by_position,
)
from plaza.social.hashtags import tags_in, tags_of
from plaza.social.keys import (
    COMMENT,
    POST,
    POST_BOOKMARKS,
    POST_COMMENTS,
    POST_COMMENTS_RECENT,
    POST_EDITS,
    POST_LIKES,
    POST_LIKES_RECENT,
    USER,
    USER_BLOCKED,
    USER_BLOCKED_BY,
    USER_BOOKMARKED,
    USER_LIKED,
)
from plaza.social.lua_replies import as_dict
from plaza.social.model import (
    Comment,
    Deleted,
    Engagement,
    NewComment,
    NewPost,
    NoProfile,
    Post,
    PostEdit,
    User,
    comment_of,
    post_of,
)
from plaza.social.post_reader import Reader, View
from plaza.social.users import People

# Who blocks no more than this, and is blocked by no more, is known in one round trip, before it is known by whom.
FEW = 1_000

# A post with more likes, bookmarks and comments than this many steps clear is left to the worker.
PURGE_STEPS = 20


def deletion_keys(post: str) -> list[str]:
    """All keys of a post, in the order `delete_post` takes them."""
    return [
        POST(post),
        POST_LIKES(post),
        POST_LIKES_RECENT(post),
        POST_BOOKMARKS(post),
        POST_COMMENTS(post),
        POST_COMMENTS_RECENT(post),
        POST_EDITS(post),
    ]


class Posts:
    """Verbs about posts."""

    def __init__(self, functions: Functions, reader: Reader, people: People, clock: Clock) -> None:
        self.functions = functions
        self.valkey = functions.valkey
        self.reader = reader
        self.people = people
        self.clock = clock

    async def create(self, actor: Actor, new: NewPost, operation: str | None = None) -> Post:
        """Post something. Run twice for one operation, it is one post. One round trip."""
        tags = tags_of(new.content, new.hashtags)
        id, now = _id(operation), self.clock.now_ms()
        keys, style = await self.style_of(actor.name)
        reply = await self.functions.run(
            "social_create_post",
            [POST(id), *keys],
            id, actor.name, new.content, new.media_url or "", ",".join(tags), now, now, *style,
        )  # fmt: skip
        if len(reply) > 3:  # it was there already
            return post_of(as_dict(reply), liked=False, bookmarked=False)
        avatar, shown, role = reply
        return Post(
            id=id, user_id=actor.name, username=actor.name, display_name=shown, avatar=avatar, user_role=role,
            content=new.content, media_url=new.media_url or None, hashtags=tags, created_at=now,
            likesCount=0, commentsCount=0, bookmarksCount=0, isLiked=False, isBookmarked=False,
        )  # fmt: skip

    async def get(self, viewer: Actor | None, id: str) -> Post:
        """A post. A banned one only to admins. One round trip; two on a cluster."""
        if viewer is not None and viewer.is_admin:
            fields = await self.valkey.call("HGETALL", POST(id))
            if fields and "banned" in fields:
                return await self._seen_by(viewer, fields)
        (item,) = await self.reader.items(View(viewer, users=False, feed=False), [id], listed=False)
        if item is None:
            raise _no_post(id)
        return item.post

    async def edit(self, actor: Actor, id: str, edit: PostEdit) -> Post:
        """Change the text. What it said is kept, and its tags follow the new text. Three round trips."""
        before = await self.valkey.call("HMGET", POST(id), "content", "hashtags")
        if before[0] is None:
            raise _no_post(id)
        in_text = set(tags_in(before[0]))
        listed = [tag for tag in (before[1] or "").split(",") if tag and tag not in in_text]
        tags = tags_of(edit.content, listed)
        keys, args = [POST(id), POST_EDITS(id)], (id, actor.name, edit.content, ",".join(tags), self.clock.now_ms())
        async with self._unless_hidden(actor, id):
            reply = await self.functions.run("social_edit_post", keys, *args)
        return await self._seen_by(actor, as_dict(reply))

    async def delete(self, actor: Actor, id: str) -> Deleted:
        """Delete a post. It is gone at once; what many did with it goes in steps. One round trip for up to 100 each."""
        args = id, "" if actor.is_admin else actor.name, self.clock.now_ms()
        async with self._unless_hidden(actor, id):
            there, left = await self.functions.run("social_delete_post", deletion_keys(id), *args)
        if not there:
            raise _no_post(id)
        await self.purge(id, left, PURGE_STEPS)
        return Deleted(id, True)

    async def purge(self, id: str, left: int = 1, most: int = 1_000_000) -> None:
        """Clear what others had to do with a deleted post, in steps. One round trip for each hundred."""
        while left and most:
            left = await self.functions.run("social_purge_post", deletion_keys(id), id, self.clock.now_ms())
            most -= 1

    async def remove(self, id: str) -> None:
        """Delete a post, whoever's it is, and wait until all of it is gone."""
        now = self.clock.now_ms()
        _, left = await self.functions.run("social_delete_post", deletion_keys(id), id, "", now)
        await self.purge(id, left)

    async def ban(self, actor: Actor, id: str, *, on: bool) -> Post:
        """Take a post out of every feed and sum, or bring it back. Two round trips."""
        by = actor.name if on else ""
        reply = await self.functions.run("social_ban_post", [POST(id)], id, by, self.clock.now_ms())
        return await self._seen_by(actor, as_dict(reply))

    async def like(self, actor: Actor, id: str) -> Engagement:
        """Like a post. A second like changes nothing. One round trip."""
        keys = [POST(id), POST_LIKES(id), POST_LIKES_RECENT(id), *await self._hiding(actor.name, id)]
        now = self.clock.now_ms()
        changed, likes = await self.functions.run("social_like", keys, id, actor.name, now, now)
        return Engagement(id, bool(changed), isLiked=True, likesCount=likes)

    async def unlike(self, actor: Actor, id: str) -> Engagement:
        """Take a like back, also from a post that is hidden by now. One round trip; more if there is no like."""
        keys = [POST(id), POST_LIKES(id), POST_LIKES_RECENT(id)]
        changed, likes = await self.functions.run("social_unlike", keys, id, actor.name, self.clock.now_ms())
        if not changed:
            await self.get(actor, id)  # of a post that is not for them, people do not hear how many like it
        return Engagement(id, bool(changed), isLiked=False, likesCount=likes)

    async def bookmark(self, actor: Actor, id: str) -> Engagement:
        """Bookmark a post. One round trip; five in sequence on a cluster."""
        name, now = actor.name, self.clock.now_ms()
        if self.valkey.clustered:
            changed = await self._bookmark_on_a_cluster(name, id, now)
        else:
            keys = [USER_BOOKMARKED(name), POST(id), USER_BLOCKED(name), USER_BLOCKED_BY(name)]
            changed = await self.functions.run("social_bookmark", keys, name, id, now, now)
        return Engagement(id, bool(changed), isBookmarked=True)

    async def _bookmark_on_a_cluster(self, name: str, id: str, now: int) -> int:
        """Five round trips in sequence.

        By way of the post and its author a bookmark reaches the leaderboard, the longest way there is. So the look at
        the post goes beside the first step, not before it, and what should not have been is taken back.
        """
        mine = [USER_BOOKMARKED(name)]
        marking = self.functions.run("social_bookmark", mine, name, id, now, now)
        ended: tuple[Any, Any] = await asyncio.gather(self._hiding(name, id), marking, return_exceptions=True)
        refused, changed = ended
        if isinstance(changed, BaseException):
            raise changed
        if isinstance(refused, BaseException):
            if changed:
                await self.functions.run("social_unbookmark", mine, name, id, self.clock.now_ms())
            raise refused
        return int(changed)

    async def unbookmark(self, actor: Actor, id: str) -> Engagement:
        """Take a bookmark away, also from a post that is hidden by now. One round trip; more if there is none."""
        keys = [USER_BOOKMARKED(actor.name)]
        changed = await self.functions.run("social_unbookmark", keys, actor.name, id, self.clock.now_ms())
        if not changed:
            await self.get(actor, id)
        return Engagement(id, bool(changed), isBookmarked=False)

    async def likes(self, viewer: Actor | None, id: str, page: Page) -> PageResult[User]:
        """Who likes a post, latest first. Three round trips; four on a cluster."""
        await self.get(viewer, id)
        key = POST_LIKES_RECENT(id)
        load, seen = partial(self.people.cards, viewer), partial(self.people.seen, viewer)
        return await page_by_position(key, page, ids_in_sorted_set(self.functions, key), load, seen)

    async def comment(self, actor: Actor, id: str, new: NewComment, operation: str | None = None) -> Comment:
        """Say something below a post. Run twice for one operation, it is one comment. One round trip."""
        me, comment, now = actor.name, _id(operation), self.clock.now_ms()
        keys = [POST(id), POST_COMMENTS(id), POST_COMMENTS_RECENT(id)]
        if self.valkey.clustered:
            await asyncio.gather(self.style_of(me), self._hiding(me, id))
        else:
            keys += [USER(me), USER_BLOCKED(me), USER_BLOCKED_BY(me)]
        made = await self.functions.run("social_comment", keys, id, comment, me, new.content, now, now)
        # An earlier run of the same operation has made it, and it has that run's time.
        before = {} if made else await self.valkey.call("HGETALL", COMMENT(comment))
        return comment_of(before) if before else Comment(comment, id, me, new.content, now)

    async def comments(self, viewer: Actor | None, id: str, page: Page) -> PageResult[Comment]:
        """What is said below a post, oldest first. Three round trips; four on a cluster."""
        await self.get(viewer, id)
        key = POST_COMMENTS_RECENT(id)

        async def load(ids: Sequence[str]) -> list[Comment | None]:
            found = await self.valkey.batch([("HGETALL", COMMENT(comment)) for comment in ids])
            names = list(dict.fromkeys(fields["username"] for fields in found if fields))
            hidden = await self.people.hidden(viewer.name, names) if viewer else set()
            return [comment_of(f) if f and f["username"] not in hidden else None for f in found]

        return await page_by_position(key, page, ids_in_sorted_set(self.functions, key, newest_first=False), load)

    def place(self, comment: Comment) -> str:
        """A cursor by which `comments` begins with this one."""
        list_of = list_checksum(POST_COMMENTS_RECENT(comment.post_id))
        return encode_cursor(Position(list_of, comment.created_at, ""))

    async def uncomment(self, actor: Actor, comment: str) -> Deleted:
        """Take a comment away: its author, the post's owner or an admin. Three round trips."""
        fields = await self.valkey.call("HGETALL", COMMENT(comment))
        if not fields:
            raise NotFound("There is no such comment.", id=comment)
        id = fields["post_id"]
        may = actor.name == fields["username"] or actor.is_admin
        if not may and actor.name != await self.valkey.call("HGET", POST(id), "user_id"):
            await self.get(actor, id)  # below a post that is hidden from them nothing is there
            raise Forbidden("Only its author, the post's owner or an admin may delete a comment.")
        await self.drop_comment(comment, id, fields["username"])
        return Deleted(comment, True)

    async def drop_comment(self, comment: str, post: str, author: str) -> None:
        keys = [POST(post), POST_COMMENTS(post), POST_COMMENTS_RECENT(post)]
        await self.functions.run("social_uncomment", keys, post, comment, author, self.clock.now_ms())

    async def style_of(self, name: str) -> tuple[list[str], list[str]]:
        """The keys and arguments by which a verb knows its author: one server looks itself, a cluster is told."""
        if not self.valkey.clustered:
            return [USER(name)], []
        style = await self.valkey.call("HMGET", USER(name), "version", "avatar", "display_name", "role")
        if style[0] is None and style[3] is None:
            raise NoProfile("You have no profile here.", username=name)
        version, *rest = style
        return [], [version or "0", *(value or "" for value in rest)]

    @contextlib.asynccontextmanager
    async def _unless_hidden(self, actor: Actor, id: str) -> AsyncIterator[None]:
        """Who may not do something to a post hears so, unless it is hidden from them: then it is not there."""
        try:
            yield
        except Forbidden:
            await self.get(actor, id)
            raise

    async def _seen_by(self, actor: Actor, fields: dict[str, str]) -> Post:
        """A post that was read already, with the flags of who sees it. One round trip."""
        keys = USER_LIKED(actor.name), USER_BOOKMARKED(actor.name)
        liked, marked = await self.valkey.batch([("ZSCORE", key, fields["id"]) for key in keys])
        return post_of(fields, liked=liked is not None, bookmarked=marked is not None)

    async def _hiding(self, name: str, id: str) -> list[str]:
        """On one server, the keys by which a verb sees who is hidden from whom; on a cluster that is seen to here."""
        keys = [USER_BLOCKED(name), USER_BLOCKED_BY(name)]
        if not self.valkey.clustered:
            return keys
        (author, banned), *few = await self.valkey.batch(
            [("HMGET", POST(id), "user_id", "banned"), *(("ZRANGE", key, 0, FEW - 1) for key in keys)]
        )
        if author is None or banned is not None or any(author in names for names in few):
            raise _no_post(id)
        if any(len(names) == FEW for names in few) and await self.people.hidden(name, [author]):
            raise _no_post(id)
        return []


def _id(operation: str | None) -> str:
    """A UUID: random, or the same for every run of one operation."""
    return str(uuid.UUID(hex=operation, version=4) if operation else uuid.uuid4())


def _no_post(id: str) -> NotFound:
    return NotFound("There is no such post.", id=id)
