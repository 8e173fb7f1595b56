"""BulkImport in many posts, each with its likes and comments at once, and all that somebody follows: faster than record
by record, since what follows from an owner's facts is computed once for all of them.

It is for those who vouch for what they bring (a community that was made, a backup): people are taken to be there, and
nobody's block is looked at. A post that is here already is left to `Sync`, which compares.
"""

from __future__ import annotations

from collections.abc import Sequence

from plaza.social import keys as k
from plaza.social.hashtags import all_tags
from plaza.social.sync import CommentRecord, FollowRecord, MarkRecord, PostRecord, Sync

# Names in one step: what Lua can hand to one command, with room to spare.
MAX_LIKES = 2_000


class BulkImport:
    def __init__(self, sync: Sync) -> None:
        self._functions = sync.functions
        self._posts = sync.posts
        self._clock = sync.clock

    async def bring(self, post: PostRecord, likes: Sequence[MarkRecord], comments: Sequence[CommentRecord]) -> bool:
        """A post with its likes and comments, in one round trip on one server. False if it is here already."""
        assert len(likes) <= MAX_LIKES
        id, now = post.id, self._clock.now_ms()
        author, style = await self._posts.author_profile(post.username)
        names = [k.POST(id), k.POST_LIKES(id), k.POST_LIKES_RECENT(id), k.POST_COMMENTS(id), k.POST_COMMENTS_RECENT(id)]
        liked = [part for like in likes for part in (like.username, _at(like.created_at, now))]
        said = [
            part
            for one in sorted(comments, key=lambda one: one.created_at or now)
            for part in (one.id, one.username, one.content, _at(one.created_at, now))
        ]
        tags = ",".join(all_tags(post.content, post.hashtags))
        own = (id, post.username, post.content, post.media_url or "", tags, _at(post.created_at, now), now)
        brought = await self._functions.run(
            "social_bring_post",
            [*names, k.POST_BOOKMARKS(id), *author],
            *own, len(style), *style, len(likes), *liked, *said,
        )  # fmt: skip
        return bool(brought)

    async def follow(self, name: str, follows: Sequence[FollowRecord]) -> int:
        """A person follows others, those of some records of theirs. One round trip on one server; how many are new."""
        assert 0 < len(follows) <= MAX_LIKES
        assert all(follow.follower == name != follow.following for follow in follows)
        now = self._clock.now_ms()
        told = [part for follow in follows for part in (follow.following, _at(follow.created_at, now))]
        names = [k.USER(name), k.USER_FOLLOWING(name), k.USER_FOLLOWING_RECENT(name)]
        return int(await self._functions.run("social_bring_follows", names, name, *told))


def _at(given: int | None, now: int) -> int:
    return now if given is None else given
