"""Posts: create, read, edit, delete, ban. Likes and bookmarks are in `engagements.py`, comments in `comments.py`."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator, Sequence

from plaza.core.auth import Actor
from plaza.core.clock import Clock
from plaza.core.errors import Forbidden, NotFound
from plaza.core.functions import Functions
from plaza.core.pictures import encode_pictures
from plaza.core.sequences import pairs_to_dict
from plaza.social.hashtags import all_tags, normalize_tag, tags_in
from plaza.social.keys import (
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
)
from plaza.social.model import DeletionResult, NewPost, NoProfile, Post, PostEdit, post_from_hash
from plaza.social.post_pictures import PostPictures
from plaza.social.post_reader import PostReader
from plaza.social.users import Users, read_copied_profile

# On a cluster, block lists up to this length are read in the same round trip as the post's author.
MAX_CHECKED_BLOCKS = 1_000

# A request deletes at most this many batches of likes, bookmarks and comments; the worker deletes the rest.
MAX_DELETE_BATCHES = 20


def deletion_keys(post: str) -> list[str]:
    """Return all keys of a post in the order that `social_delete_post` takes them."""
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
    def __init__(
        self, functions: Functions, reader: PostReader, users: Users, clock: Clock, pictures: PostPictures | None = None
    ) -> None:
        self.functions = functions
        self.valkey = functions.valkey
        self.reader = reader
        self.users = users
        self.clock = clock
        self.pictures = pictures or PostPictures(functions, None)

    async def create(self, actor: Actor, new: NewPost, operation: str | None = None) -> Post:
        """Create a post; the same operation run twice creates one post. One round trip, and one for its pictures."""
        tags = all_tags(new.content, new.hashtags)
        id, now = new_id(operation), self.clock.now_ms()
        pictures, media_url = await self.pictures.claim(actor, id, new)
        author_keys, profile = await self.author_profile(actor.name)
        reply = await self.functions.run(
            "social_create_post",
            [POST(id), *author_keys],
            id, actor.name, new.content, media_url or "", ",".join(tags), now, now, encode_pictures(pictures), *profile,
        )  # fmt: skip
        await self.store_listed_tags(id, new.content, new.hashtags)
        pictures = await self.pictures.without_deleted(id, pictures)
        if len(reply) > 3:  # an earlier run of the operation created it
            return post_from_hash(pairs_to_dict(reply), id, liked=False, bookmarked=False)
        avatar, display_name, role = reply
        return Post(
            id=id, user_id=actor.name, username=actor.name, display_name=display_name, avatar=avatar, user_role=role,
            content=new.content, media_url=media_url, hashtags=tags, created_at=now,
            likesCount=0, commentsCount=0, bookmarksCount=0, isLiked=False, isBookmarked=False,
            media=[picture.picture() for picture in pictures],
        )  # fmt: skip

    async def get(self, viewer: Actor | None, id: str) -> Post:
        """Return a post; a banned one only for admins. One round trip; two on a cluster."""
        if viewer is not None and viewer.is_admin:
            fields = await self.valkey.call("HGETALL", POST(id))
            if "banned" in fields and "user_id" in fields:
                return await self._with_flags(viewer, id, fields)
        post = await self.reader.single(viewer, id)
        if post is None:
            raise no_post(id)
        return post

    async def edit(self, actor: Actor, id: str, edit: PostEdit) -> Post:
        """Change the text of the caller's post; the old text is kept, tags follow the new one. Three round trips."""
        content, hashtags, also_listed = await self.valkey.call(
            "HMGET", POST(id), "content", "hashtags", "listed_hashtags"
        )
        if content is None:
            raise no_post(id)
        in_text = {*tags_in(content)} - {*_split(also_listed)}
        listed = [tag for tag in _split(hashtags) if tag not in in_text]
        tags = all_tags(edit.content, listed)
        keys, args = [POST(id), POST_EDITS(id)], (id, actor.name, edit.content, ",".join(tags), self.clock.now_ms())
        async with self._hide_forbidden(actor, id):
            reply = await self.functions.run("social_edit_post", keys, *args)
        await self.store_listed_tags(id, edit.content, listed, replace=also_listed is not None)
        return await self._with_flags(actor, id, pairs_to_dict(reply))

    async def store_listed_tags(self, id: str, content: str, listed: Sequence[str], *, replace: bool = False) -> None:
        """Store which tags of the list are also in the text, so that they stay when the text is edited.

        One round trip, and only if there are any, which is rare.
        """
        in_text = set(tags_in(content)) if listed else ()
        both = [tag for tag in map(normalize_tag, listed) if tag in in_text]
        if both:
            await self.valkey.call("HSET", POST(id), "listed_hashtags", ",".join(dict.fromkeys(both)))
        elif replace:
            await self.valkey.call("HDEL", POST(id), "listed_hashtags")

    async def delete(self, actor: Actor, id: str) -> DeletionResult:
        """Delete a post. Its likes, bookmarks and comments are deleted in batches of 100, one round trip each."""
        args = id, "" if actor.is_admin else actor.name, self.clock.now_ms()
        async with self._hide_forbidden(actor, id):
            existed, left = await self.functions.run("social_delete_post", deletion_keys(id), *args)
        if not existed:
            raise no_post(id)
        await self.purge(id, left, MAX_DELETE_BATCHES)
        return DeletionResult(id, True)

    async def purge(self, id: str, left: int = 1, max_batches: int = 1_000_000) -> None:
        """Delete the likes, bookmarks and comments of a deleted post. One round trip for each hundred."""
        while left and max_batches:
            left = await self.functions.run("social_purge_post", deletion_keys(id), id, self.clock.now_ms())
            max_batches -= 1

    async def delete_completely(self, id: str) -> None:
        """Delete a post of any author, with all its likes, bookmarks and comments."""
        now = self.clock.now_ms()
        _, left = await self.functions.run("social_delete_post", deletion_keys(id), id, "", now)
        await self.purge(id, left)

    async def ban(self, actor: Actor, id: str, *, on: bool) -> Post:
        """Ban a post, which removes it from every feed and sum, or end a ban. Two round trips."""
        by = actor.name if on else ""
        reply = await self.functions.run("social_ban_post", [POST(id)], id, by, self.clock.now_ms())
        return await self._with_flags(actor, id, pairs_to_dict(reply))

    async def author_profile(self, name: str) -> tuple[list[str], list[str]]:
        """Return the keys and arguments that give a command the author's profile.

        On one server the command reads the profile itself. On a cluster it is read here, in one round trip.
        """
        if not self.valkey.clustered:
            return [USER(name)], []
        copied = await read_copied_profile(self.valkey, name)
        if copied is None:
            raise NoProfile("You have no profile. Register first.", username=name)
        return [], copied

    async def block_keys(self, name: str, id: str) -> list[str]:
        """Return the keys by which a command checks that a post is visible. On a cluster, check it here instead."""
        keys = [USER_BLOCKED(name), USER_BLOCKED_BY(name)]
        if not self.valkey.clustered:
            return keys
        (author, banned), *block_lists = await self.valkey.batch(
            [("HMGET", POST(id), "user_id", "banned"), *(("ZRANGE", key, 0, MAX_CHECKED_BLOCKS - 1) for key in keys)]
        )
        if author is None or banned is not None or any(author in names for names in block_lists):
            raise no_post(id)
        is_cut = any(len(names) == MAX_CHECKED_BLOCKS for names in block_lists)
        if is_cut and await self.users.blocked_either_way(name, [author]):
            raise no_post(id)
        return []

    @contextlib.asynccontextmanager
    async def _hide_forbidden(self, actor: Actor, id: str) -> AsyncIterator[None]:
        """Answer "not found" instead of "forbidden" if the post is hidden from the caller."""
        try:
            yield
        except Forbidden:
            await self.get(actor, id)
            raise

    async def _with_flags(self, actor: Actor, id: str, fields: dict[str, str]) -> Post:
        """Return a post from its hash, with the caller's flags. One round trip."""
        liked, bookmarked = await self.valkey.batch(
            [("SISMEMBER", POST_LIKES(id), actor.name), ("ZSCORE", USER_BOOKMARKED(actor.name), id)]
        )
        return post_from_hash(fields, id, liked=bool(liked), bookmarked=bookmarked is not None)


def new_id(operation: str | None) -> str:
    """Return a UUID: random, or the same one for every run of an operation."""
    return str(uuid.UUID(hex=operation, version=4) if operation else uuid.uuid4())


def _split(tags: str | None) -> list[str]:
    return [tag for tag in (tags or "").split(",") if tag]


def no_post(id: str) -> NotFound:
    return NotFound("No post has this id.", id=id)
