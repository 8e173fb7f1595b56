"""What users can report of social: posts, comments and users."""

from __future__ import annotations

from typing import Final

from plaza.core.auth import Actor
from plaza.core.comment_tree import is_uuid
from plaza.core.errors import Invalid
from plaza.core.report_source import ReportedThing
from plaza.social.comments import Comments
from plaza.social.credentials import Credentials
from plaza.social.posts import Posts
from plaza.social.users import Users


class PostReports:
    """Posts. Removing one bans it, so that it can be shown again."""

    kind: Final = "post"
    removal: Final = "ban"

    def __init__(self, posts: Posts) -> None:
        self._posts = posts

    async def find(self, viewer: Actor, id: str) -> ReportedThing:
        post = await self._posts.get(viewer, _require_uuid(id))
        state = "banned" if post.banned else ""
        return ReportedThing(author=post.user_id, text=post.content, url=f"/app/posts/{id}", state=state)

    async def remove(self, admin: Actor, id: str) -> None:
        await self._posts.ban(admin, id, on=True)


class CommentReports:
    """Comments on posts."""

    kind: Final = "comment"
    removal: Final = "delete"

    def __init__(self, comments: Comments) -> None:
        self._comments = comments

    async def find(self, viewer: Actor, id: str) -> ReportedThing:
        comment = await self._comments.get(viewer, _require_uuid(id))
        url = f"/app/posts/{comment.post_id}?thread={id}"
        return ReportedThing(author=comment.username, text=comment.content, url=url)

    async def remove(self, admin: Actor, id: str) -> None:
        await self._comments.delete(admin, id)


class UserReports:
    """Users. They are suspended, not removed."""

    kind: Final = "user"
    removal: Final = ""

    def __init__(self, users: Users, credentials: Credentials) -> None:
        self._users = users
        self._credentials = credentials

    async def find(self, viewer: Actor, id: str) -> ReportedThing:
        user = await self._users.get(viewer, id)
        is_suspended = viewer.is_admin and await self._credentials.actor(id) is None
        return ReportedThing(
            author=user.username,
            text="\n".join(filter(None, (user.display_name, user.bio, user.links))),
            url=f"/app/people/{id}",
            state="suspended" if is_suspended else "",
        )

    async def remove(self, admin: Actor, id: str) -> None:
        raise Invalid("A user cannot be removed here. Suspend the account.", field="id")


def _require_uuid(id: str) -> str:
    if not is_uuid(id):
        raise Invalid("Must be a UUID in lower case.", field="id")
    return id
