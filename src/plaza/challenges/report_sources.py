"""What users can report of challenges: posts in them, and comments on these."""

from __future__ import annotations

import re
from typing import Final

from plaza.challenges.comments import ChallengeComments
from plaza.challenges.post_deletion import PostDeletion
from plaza.challenges.posts import ChallengePosts
from plaza.core.auth import Actor
from plaza.core.errors import Invalid, NotFound
from plaza.core.report_source import ReportedThing

# Without leading zeros: one thing has one id, and is reported once by a user.
_ID: Final = re.compile("[1-9][0-9]{0,14}")


class ChallengePostReports:
    """Posts in challenges."""

    kind: Final = "challenge_post"
    removal: Final = "delete"

    def __init__(self, posts: ChallengePosts, deletion: PostDeletion) -> None:
        self._posts = posts
        self._deletion = deletion

    async def find(self, viewer: Actor, id: str) -> ReportedThing:
        post = await self._posts.read(viewer, _number(id))
        url = f"/app/challenges/{post.challenge_id}#challenge-post-{id}"
        return ReportedThing(author=post.username, text=post.text, url=url)

    async def remove(self, admin: Actor, id: str) -> None:
        if not await self._deletion.delete([int(id)]):
            raise NotFound("No post has this id.", id=id)


class ChallengeCommentReports:
    """Comments on posts in challenges."""

    kind: Final = "challenge_comment"
    removal: Final = "delete"

    def __init__(self, comments: ChallengeComments) -> None:
        self._comments = comments

    async def find(self, viewer: Actor, id: str) -> ReportedThing:
        comment = await self._comments.get(viewer, _number(id))
        url = f"/app/challenges/posts/{comment.post_id}#comment-{id}"
        return ReportedThing(author=comment.username, text=comment.content, url=url)

    async def remove(self, admin: Actor, id: str) -> None:
        await self._comments.delete(admin, int(id))


def _number(id: str) -> int:
    if not _ID.fullmatch(id):
        raise Invalid("This is no id of such a thing.", field="id")
    return int(id)
