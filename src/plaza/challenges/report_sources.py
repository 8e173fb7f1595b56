"""What users can report of challenges: posts in them."""

from __future__ import annotations

import re
from typing import Final

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
        if not _ID.fullmatch(id):
            raise Invalid("This is no id of such a thing.", field="id")
        post = await self._posts.read(viewer, int(id))
        url = f"/app/challenges/{post.challenge_id}#challenge-post-{id}"
        return ReportedThing(author=post.username, text=post.text, url=url)

    async def remove(self, admin: Actor, id: str) -> None:
        if not await self._deletion.delete([int(id)]):
            raise NotFound("No post has this id.", id=id)
