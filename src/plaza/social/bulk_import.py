"""Bulk import: a post with all its likes and comments, or all follows of a user, in one command each.

Faster than one record at a time, because projections are computed once. For trusted sources only (a generated
community, a backup): users are assumed to exist, and blocks are not checked. `InboundSync` handles existing posts.
"""

from __future__ import annotations

from collections.abc import Sequence

from plaza.core.pictures import StoredPicture, encode_pictures
from plaza.social import keys as k
from plaza.social.hashtags import all_tags
from plaza.social.inbound_sync import CommentRecord, FollowRecord, InboundSync, MarkRecord, PostRecord

# Likes or follows in one command: Lua can pass about 8,000 arguments to a call.
MAX_LIKES = 2_000


class BulkImport:
    def __init__(self, sync: InboundSync) -> None:
        self._functions = sync.functions
        self._posts = sync.posts
        self._clock = sync.clock

    async def import_post(
        self,
        post: PostRecord,
        likes: Sequence[MarkRecord],
        comments: Sequence[CommentRecord],
        pictures: Sequence[StoredPicture] = (),
    ) -> bool:
        """Create a post with its likes and comments; return False if it exists. One round trip on one server."""
        assert len(likes) <= MAX_LIKES
        id, now = post.id, self._clock.now_ms()
        author_keys, profile = await self._posts.author_profile(post.username)
        names = [k.POST(id), k.POST_LIKES(id), k.POST_LIKES_RECENT(id), k.POST_COMMENTS(id), k.POST_COMMENTS_RECENT(id)]
        like_args = [part for like in likes for part in (like.username, _at(like.created_at, now))]
        comment_args = [
            part
            for comment in sorted(comments, key=lambda comment: comment.created_at or now)
            for part in _comment_args(comment, now)
        ]
        tags = ",".join(all_tags(post.content, post.hashtags))
        media_url, created_at = post.media_url or "", _at(post.created_at, now)
        post_args = (id, post.username, post.content, media_url, tags, created_at, now, encode_pictures(pictures))
        created = await self._functions.run(
            "social_import_post",
            [*names, k.POST_BOOKMARKS(id), *author_keys],
            *post_args, len(profile), *profile, len(likes), *like_args, *comment_args,
        )  # fmt: skip
        return bool(created)

    async def import_follows(self, name: str, follows: Sequence[FollowRecord]) -> int:
        """Create follows of one user; return how many are new. One round trip on one server."""
        assert 0 < len(follows) <= MAX_LIKES
        assert all(follow.follower == name != follow.following for follow in follows)
        now = self._clock.now_ms()
        targets = [part for follow in follows for part in (follow.following, _at(follow.created_at, now))]
        names = [k.USER(name), k.USER_FOLLOWING(name), k.USER_FOLLOWING_RECENT(name)]
        return int(await self._functions.run("social_import_follows", names, name, *targets))


def _at(given: int | None, now: int) -> int:
    return now if given is None else given


def _comment_args(comment: CommentRecord, now: int) -> tuple[str | int, ...]:
    created = _at(comment.created_at, now)
    return comment.id, comment.username, comment.content, created, comment.reply_to or ""
