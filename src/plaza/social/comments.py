"""Comments on posts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from plaza.core.auth import Actor
from plaza.core.errors import Forbidden, NotFound
from plaza.core.functions import Functions
from plaza.core.number_parsing import parse_time_ms
from plaza.core.paging import (
    Page,
    PageResult,
    Position,
    encode_cursor,
    ids_in_sorted_set,
    list_checksum,
    page_by_position,
)
from plaza.social.keys import (
    COMMENT,
    POST,
    POST_COMMENTS,
    POST_COMMENTS_RECENT,
    USER,
    USER_BLOCKED,
    USER_BLOCKED_BY,
)
from plaza.social.model import MAX_COMPLETED, Comment, DeletionResult, NewComment, comment_from_hash
from plaza.social.posts import Posts, new_id


class Comments:
    def __init__(self, functions: Functions, posts: Posts) -> None:
        self.functions = functions
        self.valkey = functions.valkey
        self.posts = posts
        self.clock = posts.clock

    async def create(self, actor: Actor, post: str, new: NewComment, operation: str | None = None) -> Comment:
        """Comment on a post; the same operation run twice creates one comment. One round trip."""
        me, id, now = actor.name, new_id(operation), self.clock.now_ms()
        keys = [POST(post), POST_COMMENTS(post), POST_COMMENTS_RECENT(post)]
        if self.valkey.clustered:
            await asyncio.gather(self.posts.author_profile(me), self.posts.block_keys(me, post))
        else:
            keys += [USER(me), USER_BLOCKED(me), USER_BLOCKED_BY(me)]
        created = await self.functions.run("social_create_comment", keys, post, id, me, new.content, now, now)
        # An earlier run of the operation has created it, at another time.
        earlier = {} if created else await self.valkey.call("HGETALL", COMMENT(id))
        return comment_from_hash(earlier, id) if earlier else Comment(id, post, me, new.content, now)

    async def page(self, viewer: Actor | None, post: str, page: Page) -> PageResult[Comment]:
        """List the comments on a post, oldest first. Three round trips; four on a cluster."""
        await asyncio.gather(self.posts.get(viewer, post), self._complete_index(post))
        key = POST_COMMENTS_RECENT(post)

        async def load(ids: Sequence[str]) -> list[Comment | None]:
            found = await self.valkey.batch([("HGETALL", COMMENT(id)) for id in ids])
            authors = list(dict.fromkeys(fields.get("username", "") for fields in found if fields))
            hidden = await self.posts.users.hidden_from(viewer.name, authors) if viewer else set()
            comments = [
                comment_from_hash(fields, id) if fields else None for id, fields in zip(ids, found, strict=True)
            ]
            return [None if comment is None or comment.username in hidden else comment for comment in comments]

        return await page_by_position(key, page, ids_in_sorted_set(self.functions, key, newest_first=False), load)

    async def _complete_index(self, post: str) -> None:
        """Index the comments that another service added to the list or removed. One round trip if there are none."""
        comments, recent = POST_COMMENTS(post), POST_COMMENTS_RECENT(post)
        listed, indexed = await self.valkey.batch([("LLEN", comments), ("ZCARD", recent)])
        if listed == indexed or listed > MAX_COMPLETED:
            return
        ids = await self.valkey.call("LRANGE", comments, 0, -1)
        rows = await self.valkey.batch([("HMGET", COMMENT(id), "created_at", "username") for id in ids])
        entries: list[str | int] = []
        at = 0
        for id, (created, name) in zip(ids, rows, strict=True):
            at = max(at, parse_time_ms(created))  # the list is in the order of time, also without valid times
            entries += [id, at, name or ""]
        await self.functions.run("social_complete_comments", [POST(post), comments, recent], post, *entries)

    def cursor_at(self, comment: Comment) -> str:
        """Return a cursor for `page` that starts with this comment."""
        list_id = list_checksum(POST_COMMENTS_RECENT(comment.post_id))
        return encode_cursor(Position(list_id, comment.created_at, ""))

    async def delete(self, actor: Actor, id: str) -> DeletionResult:
        """Delete a comment (its author, the post's author or an admin). Three round trips."""
        fields = await self.valkey.call("HGETALL", COMMENT(id))
        if not fields:
            raise NotFound("No comment has this id.", id=id)
        comment = comment_from_hash(fields, id)
        post = comment.post_id
        allowed = actor.name == comment.username or actor.is_admin
        if not allowed and actor.name != await self.valkey.call("HGET", POST(post), "user_id"):
            await self.posts.get(actor, post)  # the comments of a hidden post are hidden too
            raise Forbidden("Only its author, the post's author or an admin can delete a comment.")
        await self.remove(id, post, comment.username)
        return DeletionResult(id, True)

    async def remove(self, id: str, post: str, author: str) -> None:
        """Delete a comment without a permission check. One round trip."""
        keys = [POST(post), POST_COMMENTS(post), POST_COMMENTS_RECENT(post)]
        await self.functions.run("social_delete_comment", keys, post, id, author, self.clock.now_ms())
