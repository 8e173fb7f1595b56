"""The events of social. `emit()` in the Lua of the same noun emits them.

Events of a user have the user's name as subject, those of a follow the follower's. What another service writes to
documented keys is announced when Plaza adds it to its indexes.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from plaza.core.events import EventData

Username = Annotated[str, Meta(description="The user's name.")]
PostId = Annotated[str, Meta(description="Id of the post.")]
PostAuthor = Annotated[str, Meta(description="Username of the post's author.")]
CommentId = Annotated[str, Meta(description="Id of the comment.")]
CommentAuthor = Annotated[str, Meta(description="Username of the comment's author.")]
Follower = Annotated[str, Meta(description="Username of the follower.")]
Followed = Annotated[str, Meta(description="Username of the user who is followed.")]


class UserEvent(EventData):
    subject: ClassVar[str] = "username"
    username: Username


class UserRegistered(UserEvent):
    """An account was created."""

    type: ClassVar[str] = "user.registered"


class UserUpdated(UserEvent):
    """A profile was changed."""

    type: ClassVar[str] = "user.updated"


class UserRenamed(EventData):
    """A username was changed, and everything that named it. The old username is free again.

    Each follow, like and vote was moved before, with events that have the origin `rename`.
    """

    type: ClassVar[str] = "user.renamed"
    subject: ClassVar[str] = "old"
    old: Annotated[str, Meta(description="The username until now.")]
    new: Annotated[str, Meta(description="The username from now on.")]


class UserDeleted(UserEvent):
    """An account was deleted. Events of its follows, likes, comments and posts follow as they are deleted."""

    type: ClassVar[str] = "user.deleted"


class UserSuspended(UserEvent):
    """An account was suspended."""

    type: ClassVar[str] = "user.suspended"


class UserUnsuspended(UserEvent):
    """A suspension ended."""

    type: ClassVar[str] = "user.unsuspended"


class UserRoleChanged(UserEvent):
    """A user has another role."""

    type: ClassVar[str] = "user.role_changed"
    role: Annotated[str, Meta(description="The new role: `user`, `model` or `admin`.")]


class FollowEvent(EventData):
    subject: ClassVar[str] = "follower"
    follower: Follower
    followed: Followed


class UserFollowed(FollowEvent):
    """A user follows another one."""

    type: ClassVar[str] = "user.followed"


class UserUnfollowed(FollowEvent):
    """A user no longer follows another one: by choice, by a block, or because one of the accounts was deleted."""

    type: ClassVar[str] = "user.unfollowed"


class PostEvent(EventData):
    subject: ClassVar[str] = "post"
    post: PostId
    author: PostAuthor


class PostCreated(PostEvent):
    """A post was created."""

    type: ClassVar[str] = "post.created"


class PostEdited(PostEvent):
    """A post was changed."""

    type: ClassVar[str] = "post.edited"


class PostDeleted(PostEvent):
    """A post was deleted, and with it its likes and comments, which have no events of their own."""

    type: ClassVar[str] = "post.deleted"


class PostBanned(PostEvent):
    """An admin banned a post."""

    type: ClassVar[str] = "post.banned"


class PostUnbanned(PostEvent):
    """An admin ended the ban of a post."""

    type: ClassVar[str] = "post.unbanned"


class PostLiked(PostEvent):
    """A user likes a post."""

    type: ClassVar[str] = "post.liked"
    username: Username


class PostUnliked(PostEvent):
    """A user no longer likes a post."""

    type: ClassVar[str] = "post.unliked"
    username: Username


class CommentEvent(EventData):
    subject: ClassVar[str] = "comment"
    comment: CommentId
    post: PostId
    author: PostAuthor


class CommentCreated(CommentEvent):
    """A user commented on a post."""

    type: ClassVar[str] = "comment.created"
    username: CommentAuthor
    reply_to: Annotated[str | None, Meta(description="Id of the comment that it replies to.")] = None


class CommentEdited(EventData):
    """The text of a comment was changed."""

    type: ClassVar[str] = "comment.edited"
    subject: ClassVar[str] = "comment"
    comment: CommentId
    post: PostId
    username: CommentAuthor


class CommentDeleted(CommentEvent):
    """A comment was deleted, but not its post."""

    type: ClassVar[str] = "comment.deleted"
    username: CommentAuthor | None = None  # unknown if another service deleted it
    reply_to: Annotated[str | None, Meta(description="Id of the comment that it replied to.")] = None


EVENTS = (
    UserRegistered,
    UserUpdated,
    UserRenamed,
    UserDeleted,
    UserSuspended,
    UserUnsuspended,
    UserRoleChanged,
    UserFollowed,
    UserUnfollowed,
    PostCreated,
    PostEdited,
    PostDeleted,
    PostBanned,
    PostUnbanned,
    PostLiked,
    PostUnliked,
    CommentCreated,
    CommentEdited,
    CommentDeleted,
)
