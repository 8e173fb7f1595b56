"""The events of social. `emit()` in the Lua of the same noun emits them."""

from __future__ import annotations

from typing import ClassVar

from plaza.core.events import EventData


class UserFollowed(EventData):
    """A user follows another one."""

    type: ClassVar[str] = "user.followed"
    subject: ClassVar[str] = "follower"
    follower: str
    followed: str


class UserUnfollowed(EventData):
    """A user no longer follows another one: by choice, by a block, or because one of the accounts was deleted."""

    type: ClassVar[str] = "user.unfollowed"
    subject: ClassVar[str] = "follower"
    follower: str
    followed: str


class PostLiked(EventData):
    """A user likes a post."""

    type: ClassVar[str] = "post.liked"
    subject: ClassVar[str] = "post"
    post: str
    author: str
    username: str


class PostUnliked(EventData):
    """A user no longer likes a post. The likes of a deleted post end with it, without an event each."""

    type: ClassVar[str] = "post.unliked"
    subject: ClassVar[str] = "post"
    post: str
    author: str
    username: str


EVENTS = (UserFollowed, UserUnfollowed, PostLiked, PostUnliked)
