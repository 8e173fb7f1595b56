"""The events of articles. `emit_article()` and `emit_vote()` in Lua emit them."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from plaza.core.events import EventData


class ArticleEvent(EventData):
    subject: ClassVar[str] = "article"
    article: Annotated[int, Meta(description="Id of the article.")]
    author: Annotated[str, Meta(description="Username of the article's author.")]


class ArticlePosted(ArticleEvent):
    """An article was posted. Its author's vote for it is part of that and has no event of its own."""

    type: ClassVar[str] = "article.posted"


class ArticleVoted(ArticleEvent):
    """A user voted on an article, or took the vote back."""

    type: ClassVar[str] = "article.voted"
    username: Annotated[str, Meta(description="The voter's username.")]
    direction: Annotated[Literal["up", "down", "none"], Meta(description="The vote from now on; `none`: taken back.")]


class ArticleCommented(ArticleEvent):
    """A user commented on an article, or replied to a comment on it."""

    type: ClassVar[str] = "article.commented"
    comment: Annotated[str, Meta(description="Id of the comment.")]
    username: Annotated[str, Meta(description="Username of the comment's author.")]
    reply_to: Annotated[str | None, Meta(description="Id of the comment that it replies to.")] = None


class ArticleCommentEdited(ArticleEvent):
    """The text of a comment on an article was changed."""

    type: ClassVar[str] = "article.comment_edited"
    comment: Annotated[str, Meta(description="Id of the comment.")]
    username: Annotated[str, Meta(description="Username of the comment's author.")]


class ArticleCommentDeleted(ArticleEvent):
    """A comment on an article was deleted, but not the article."""

    type: ClassVar[str] = "article.comment_deleted"
    comment: Annotated[str, Meta(description="Id of the comment.")]
    username: Annotated[str | None, Meta(description="Username of the comment's author, if it is known.")] = None
    reply_to: Annotated[str | None, Meta(description="Id of the comment that it replied to.")] = None


class ArticleDeleted(ArticleEvent):
    """An article was deleted, and with it its votes and comments, which have no events of their own."""

    type: ClassVar[str] = "article.deleted"


EVENTS = (ArticlePosted, ArticleVoted, ArticleCommented, ArticleCommentEdited, ArticleCommentDeleted, ArticleDeleted)
