"""Comments on posts, and replies to them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from plaza.core.auth import Actor
from plaza.core.comment_tree import TOP_LEVEL, CommentState, CommentTrees, TreeKeys
from plaza.core.errors import Forbidden, Invalid, NotFound
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
from plaza.core.pictures import AvatarAddresses
from plaza.core.sequences import pairs_to_dict
from plaza.social.keys import (
    COMMENT,
    COMMENT_EDITS,
    POST,
    POST_COMMENT_PARENTS,
    POST_COMMENT_REPLIES,
    POST_COMMENT_STUBS,
    POST_COMMENTS,
    POST_COMMENTS_RECENT,
    POST_COMMENTS_TOP,
    USER,
    USER_BLOCKED,
    USER_BLOCKED_BY,
    USER_COMMENTS,
)
from plaza.social.model import MAX_COMPLETED, Comment, CommentEdit, DeletionResult, NewComment, comment_from_hash
from plaza.social.posts import Posts, new_id


def thread_keys(post: str) -> TreeKeys:
    """Return the keys of a post's comments."""
    return TreeKeys(
        all=POST_COMMENTS_RECENT(post),
        parents=POST_COMMENT_PARENTS(post),
        stubs=POST_COMMENT_STUBS(post),
        top=POST_COMMENTS_TOP(post),
        replies=lambda comment: POST_COMMENT_REPLIES(post, comment),
    )


class Comments:
    def __init__(self, functions: Functions, posts: Posts, avatars: AvatarAddresses) -> None:
        self.functions = functions
        self.valkey = functions.valkey
        self.posts = posts
        self.clock = posts.clock
        self._avatars = avatars
        self._trees = CommentTrees(functions, "social")

    async def create(self, actor: Actor, post: str, new: NewComment, operation: str | None = None) -> Comment:
        """Comment on a post; the same operation run twice creates one comment. One round trip on one server."""
        me, id, now, parent = actor.name, new_id(operation), self.clock.now_ms(), new.reply_to or ""
        keys = [POST(post), POST_COMMENTS(post), POST_COMMENTS_RECENT(post)]
        if self.valkey.clustered:
            checks = [self._require_shown(me, parent)] if parent else []
            await asyncio.gather(self.posts.author_profile(me), self.posts.block_keys(me, post), *checks)
        else:
            keys += [USER(me), USER_BLOCKED(me), USER_BLOCKED_BY(me)]
        args = (post, id, me, new.content, now, now, parent)
        created, avatar = await self.functions.run("social_create_comment", keys, *args)
        # An earlier run of the operation has created it, at another time.
        earlier = {} if created else await self.valkey.call("HGETALL", COMMENT(id))
        if earlier or self.valkey.clustered:
            avatar = (await self._avatars.addresses([me]))[me]
        if earlier:
            return comment_from_hash(earlier, id, avatar)
        return Comment(id, post, me, avatar, new.content, now, parent or None, 0)

    async def _require_shown(self, viewer: str, id: str) -> None:
        """Refuse a reply to a comment that a block hides from the caller. Two round trips, on a cluster only."""
        author = await self.valkey.call("HGET", COMMENT(id), "username")
        if author is None or await self.posts.users.blocked_either_way(viewer, [author]):
            raise _no_such_parent()

    async def get(self, viewer: Actor | None, id: str) -> Comment:
        """Return a comment that the viewer can see; also a deleted one with replies has none. Three round trips."""
        fields = await self.valkey.call("HGETALL", COMMENT(id))
        if not fields:
            raise no_comment(id)
        post = fields.get("post_id", "")
        await self.posts.get(viewer, post)
        (comment,) = await self._load(viewer, post, [id])
        if comment is None:
            raise no_comment(id)
        return comment

    async def written_by(self, actor: Actor, page: Page) -> PageResult[Comment]:
        """List the caller's comments that they can still see, latest first. Four round trips."""
        key = USER_COMMENTS(actor.name)

        async def load(ids: Sequence[str]) -> list[Comment | None]:
            found = await asyncio.gather(*(self.get(actor, id) for id in ids), return_exceptions=True)
            for error in found:
                if isinstance(error, BaseException) and not isinstance(error, NotFound):
                    raise error
            return [None if isinstance(comment, BaseException) else comment for comment in found]

        return await page_by_position(key, page, ids_in_sorted_set(self.functions, key), load)

    async def get_in_thread(self, viewer: Actor | None, post: str, id: str) -> Comment:
        """Return a comment of a post, or what is left of a deleted one. The post must be visible. Two round trips."""
        (comment,) = await self._load(viewer, post, [id])
        if comment is None or comment.post_id != post:
            raise no_comment(id)
        return comment

    async def page(
        self, viewer: Actor | None, post: str, page: Page, reply_to: str | None = None
    ) -> PageResult[Comment]:
        """List the comments on a post, oldest first: all, the replies to one, or (`none`) those that reply to no other.

        Three round trips; four on a cluster. Neither the depth nor the size of the thread matters.
        """
        keys = thread_keys(post)
        _, _, has_replies = await asyncio.gather(
            self.posts.get(viewer, post), self._complete_index(post), self._check_thread(keys, reply_to)
        )
        name, after = keys.all, self._trees.everything(keys)
        if reply_to == TOP_LEVEL:
            name, after = keys.top, self._trees.top(keys, has_replies=has_replies)
        elif reply_to is not None:
            name, after = keys.replies(reply_to), self._trees.replies(keys, reply_to)

        async def load(ids: Sequence[str]) -> list[Comment | None]:
            return await self._load(viewer, post, ids)

        return await page_by_position(name, page, after, load)

    async def _check_thread(self, keys: TreeKeys, reply_to: str | None) -> bool:
        """Return whether the post has replies; refuse a comment that is not one of the post's. One round trip."""
        id = reply_to or ""
        has_replies, known, stub = await self.valkey.batch(
            [("EXISTS", keys.parents), ("ZSCORE", keys.all, id), ("ZSCORE", keys.stubs, id)]
        )
        if reply_to not in (None, TOP_LEVEL) and known is None and stub is None:
            raise _no_such_parent()
        return bool(has_replies)

    async def _load(self, viewer: Actor | None, post: str, ids: Sequence[str]) -> list[Comment | None]:
        """Return comments and stubs; None for those hidden from the viewer. Two round trips, three for new authors."""
        found, states = await asyncio.gather(
            self.valkey.batch([("HGETALL", COMMENT(id)) for id in ids]), self._trees.states(thread_keys(post), ids)
        )
        replying = {id: state for id, state, fields in zip(ids, states, found, strict=True) if not fields}
        parents = await self.valkey.call("HMGET", POST_COMMENT_PARENTS(post), *replying) if replying else []
        stubs = {
            id: _stub(id, post, state, parent) for (id, state), parent in zip(replying.items(), parents, strict=True)
        }
        authors = list(dict.fromkeys(fields.get("username", "") for fields in found if fields))
        avatars = await self._avatars.addresses(authors)
        hidden = await self.posts.users.hidden_from(viewer, authors) if viewer else set()
        return [
            stubs[id]
            if not fields
            else comment_from_hash(fields, id, avatars[fields.get("username", "")], state.replies)
            if fields.get("username", "") not in hidden
            else None
            for id, fields, state in zip(ids, found, states, strict=True)
        ]

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
        """Return a cursor that starts with this comment, for the `page` of the comments on the same level."""
        keys = thread_keys(comment.post_id)
        list_id = list_checksum(keys.replies(comment.reply_to) if comment.reply_to else keys.top)
        return encode_cursor(Position(list_id, comment.created_at, ""))

    async def edit(self, actor: Actor, id: str, edit: CommentEdit) -> Comment:
        """Change the text of the caller's comment; the old text is kept. Six round trips."""
        comment = await self.get(actor, id)
        keys = [COMMENT(id), COMMENT_EDITS(id)]
        fields = await self.functions.run(
            "social_edit_comment", keys, id, actor.name, edit.content, self.clock.now_ms()
        )
        return comment_from_hash(pairs_to_dict(fields), id, comment.avatar, comment.repliesCount)

    async def delete(self, actor: Actor, id: str) -> DeletionResult:
        """Delete a comment (its author, the post's author or an admin). With replies, a stub is left. Three trips."""
        fields = await self.valkey.call("HGETALL", COMMENT(id))
        if not fields:
            raise no_comment(id)
        comment = comment_from_hash(fields, id)
        post = comment.post_id
        allowed = actor.name == comment.username or actor.is_admin
        if not allowed and actor.name != await self.valkey.call("HGET", POST(post), "user_id"):
            await self.posts.get(actor, post)  # the comments of a hidden post are hidden too
            raise Forbidden("Only its author, the post's author or an admin can delete a comment.")
        await self.remove(id, post, comment.username)
        return DeletionResult(id, True)

    async def remove(self, id: str, post: str, author: str) -> None:
        """Delete a comment without a permission check. One round trip, and one for each 100 stubs that end with it."""
        keys = [POST(post), POST_COMMENTS(post), POST_COMMENTS_RECENT(post)]
        stub = await self.functions.run("social_delete_comment", keys, post, id, author, self.clock.now_ms())
        while stub:
            stub = await self.functions.run("social_prune_comments", [POST(post)], post, stub)


def _stub(id: str, post: str, state: CommentState, parent: str | None) -> Comment | None:
    """Return a deleted comment that has replies; None if it has none, or if it was deleted meanwhile."""
    if state.stub_created_ms is None or not state.replies:
        return None
    return Comment(id, post, "", "", "", state.stub_created_ms, parent, state.replies, deleted=True)


def no_comment(id: str) -> NotFound:
    return NotFound("No comment has this id.", id=id)


def _no_such_parent() -> Invalid:
    return Invalid("No comment of this post has this id.", field="reply_to")
