"""Comments on posts and articles as HTML, from cached fragments (`fragment_cache.py`)."""

from __future__ import annotations

from typing import Protocol

from plaza.web.fragment_cache import cached_fragment
from plaza.web.rendering import render
from plaza.web.text_html import format_age
from plaza.web.visitors import Visitor


class ShownComment(Protocol):
    """What a row shows of a comment on a post or an article."""

    @property
    def id(self) -> str: ...
    @property
    def username(self) -> str: ...
    @property
    def content(self) -> str: ...
    @property
    def created_at(self) -> int: ...
    @property
    def repliesCount(self) -> int: ...  # noqa: N802
    @property
    def deleted(self) -> bool | None: ...


def row(
    comment: ShownComment,
    visitor: Visitor,
    now_ms: int,
    *,
    edited: bool,
    can_delete: bool,
    can_edit: bool,
    thread_path: str,
    path: str,
) -> bytes:
    """One comment, with what the visitor can do. `thread_path` shows its replies, below `path` are its forms."""
    deleted = bool(comment.deleted)
    return _cached_row[
        comment.id,
        comment.username,
        comment.content,
        comment.created_at,
        format_age(comment.created_at, now_ms),
        comment.repliesCount,
        edited,
        deleted,
        can_delete and not deleted,
        can_edit and not deleted,
        visitor.is_admin and not can_edit,
        visitor.actor is not None,
        thread_path,
        path,
    ]


@cached_fragment()
def _cached_row(
    id: str,
    username: str,
    content: str,
    created_at: int,
    when: str,
    replies: int,
    edited: bool,
    deleted: bool,
    can_delete: bool,
    can_edit: bool,
    asks: bool,
    can_reply: bool,
    thread_path: str,
    path: str,
) -> bytes:
    comment = {"id": id, "username": username, "content": content, "created_at": created_at, "edited": edited}
    thread = {"path": thread_path, "replies": replies, "deleted": deleted, "can_reply": can_reply}
    subject = "article_comment" if path.startswith("/app/articles/") else "comment"
    actions = {"can_delete": can_delete, "can_edit": can_edit, "asks": asks, "path": path, "subject": subject}
    return render("comment.html", comment=comment, when=when, thread=thread, actions=actions).encode()
