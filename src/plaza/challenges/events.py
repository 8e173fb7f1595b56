"""The events of challenges. They are added to the transaction that writes the rows."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from msgspec import Meta

from plaza.core.events import EventData

STREAM: Final = "challenges"

Username = Annotated[str, Meta(description="The member's username.")]
PostId = Annotated[int, Meta(description="Id of the post in the challenge.")]
CommentId = Annotated[int, Meta(description="Id of the comment.")]
Author = Annotated[str, Meta(description="Username of the post's author.")]
CommentAuthor = Annotated[str, Meta(description="Username of the comment's author.")]
Creator = Annotated[str, Meta(description="Username of its creator; empty if the account was deleted.")]


class ChallengeEvent(EventData):
    subject: ClassVar[str] = "challenge"
    challenge: Annotated[int, Meta(description="Id of the challenge.")]


class ChallengeCreated(ChallengeEvent):
    """A challenge was created."""

    type: ClassVar[str] = "challenge.created"
    creator: Creator


class ChallengeEdited(ChallengeEvent):
    """The title, the duration or the unit of a challenge was changed."""

    type: ClassVar[str] = "challenge.edited"
    creator: Creator


class ChallengeDeleted(ChallengeEvent):
    """A challenge was deleted. Its posts have events of their own."""

    type: ClassVar[str] = "challenge.deleted"
    creator: Creator
    username: Annotated[str, Meta(description="Username of the user who deleted it: its creator or an admin.")]


class ChallengeInvited(ChallengeEvent):
    """A user was invited to a challenge."""

    type: ClassVar[str] = "challenge.invited"
    username: Annotated[str, Meta(description="Username of the invited user.")]
    inviter: Annotated[str, Meta(description="Username of the user who invited.")]


class ChallengeInvitationEnded(ChallengeEvent):
    """An invitation was accepted, declined or withdrawn."""

    type: ClassVar[str] = "challenge.invitation_ended"
    username: Annotated[str, Meta(description="Username of the invited user.")]
    inviter: Annotated[str, Meta(description="Username of the user who invited.")]


class ChallengeJoined(ChallengeEvent):
    """A user joined a challenge."""

    type: ClassVar[str] = "challenge.joined"
    username: Username


class ChallengeLeft(ChallengeEvent):
    """A user left a challenge, or the account was deleted."""

    type: ClassVar[str] = "challenge.left"
    username: Username


class ChallengeTracked(ChallengeEvent):
    """A member tracked a day of progress."""

    type: ClassVar[str] = "challenge.tracked"
    username: Username
    date: Annotated[str, Meta(description="The tracked day, `YYYY-MM-DD`.")]


class ChallengeUntracked(ChallengeEvent):
    """A member took back a tracked day."""

    type: ClassVar[str] = "challenge.untracked"
    username: Username
    date: Annotated[str, Meta(description="The day that was tracked, `YYYY-MM-DD`.")]


class ChallengeReminded(ChallengeEvent):
    """A member was reminded that the day is not tracked yet."""

    type: ClassVar[str] = "challenge.reminded"
    username: Username
    date: Annotated[str, Meta(description="The day that is not tracked, `YYYY-MM-DD`.")]
    streak: Annotated[int, Meta(description="The days in a row that end with it; 0 for none.")]


class ChallengePosted(ChallengeEvent):
    """A member posted in a challenge."""

    type: ClassVar[str] = "challenge.posted"
    post: PostId
    username: Username


class ChallengePostEdited(ChallengeEvent):
    """The text of a post in a challenge was changed."""

    type: ClassVar[str] = "challenge.post_edited"
    post: PostId
    username: Username


class ChallengePostDeleted(ChallengeEvent):
    """A post in a challenge was deleted, and with it its reactions and comments, which have no events of their own."""

    type: ClassVar[str] = "challenge.post_deleted"
    post: PostId
    username: Username


class ChallengeCommented(ChallengeEvent):
    """A user commented on a post in a challenge."""

    type: ClassVar[str] = "challenge.commented"
    post: PostId
    comment: CommentId
    author: Author
    username: CommentAuthor


class ChallengeCommentEdited(ChallengeEvent):
    """The text of a comment on a post in a challenge was changed."""

    type: ClassVar[str] = "challenge.comment_edited"
    post: PostId
    comment: CommentId
    username: CommentAuthor


class ChallengeCommentDeleted(ChallengeEvent, omit_defaults=True):
    """A comment on a post in a challenge was deleted, but not the post."""

    type: ClassVar[str] = "challenge.comment_deleted"
    post: PostId
    comment: CommentId
    author: Author
    username: CommentAuthor
    reply_to: Annotated[int, Meta(description="Id of the comment that it replied to, if any.")] | None = None


class ChallengeReacted(ChallengeEvent):
    """A user reacted to a post in a challenge, or took the reaction back."""

    type: ClassVar[str] = "challenge.reacted"
    post: PostId
    author: Author
    username: Annotated[str, Meta(description="Username of the user who reacted.")]
    reacted: Annotated[bool, Meta(description="Whether there is a reaction from now on.")]


EVENTS = (
    ChallengeCreated,
    ChallengeEdited,
    ChallengeDeleted,
    ChallengeInvited,
    ChallengeInvitationEnded,
    ChallengeJoined,
    ChallengeLeft,
    ChallengeTracked,
    ChallengeUntracked,
    ChallengeReminded,
    ChallengePosted,
    ChallengePostEdited,
    ChallengePostDeleted,
    ChallengeCommented,
    ChallengeCommentEdited,
    ChallengeCommentDeleted,
    ChallengeReacted,
)
