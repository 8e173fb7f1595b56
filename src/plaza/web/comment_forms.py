"""Editing and deleting a comment: the same forms below posts, articles and posts in challenges."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol

from msgspec import Struct

from plaza.core.auth import Actor
from plaza.core.errors import Forbidden, Invalid, NotFound
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.web import forms
from plaza.web.operator_navigation import confirmation
from plaza.web.page_responses import PageResponses
from plaza.web.text_html import truncate_text
from plaza.web.visitors import Visitor

MAX_EXCERPT_CHARACTERS: Final = 200


class WrittenComment(Protocol):
    @property
    def username(self) -> str: ...

    @property
    def content(self) -> str: ...

    @property
    def reply_to(self) -> Any: ...


class CommentService(Protocol):
    async def get(self, viewer: Actor | None, id: Any) -> WrittenComment: ...

    async def edit(self, actor: Actor, id: Any, edit: Any) -> WrittenComment: ...

    async def delete(self, actor: Actor, id: Any) -> object: ...


class CommentForms(Struct, frozen=True):
    """The forms of one comment. `back` is the path of what it is about."""

    site: PageResponses
    request: Request
    comments: CommentService
    comment: str | int
    back: str
    section: str = ""

    async def show(self) -> Response[str]:
        """Show the form to edit the comment."""
        visitor = await self.site.visitors.from_request(self.request)
        found = await self.comments.get(visitor.require_user(), self.comment)
        if found.username != visitor.name:
            raise Forbidden("Only the author can edit a comment.")
        return self._page(visitor, found.content)

    async def save(self, body: bytes, edit: type[Any], thread_path: Callable[[str | None], str]) -> Response[str]:
        """Save the text, or show the form again with what is wrong. Leads to the comment in its thread."""
        visitor = await self.site.visitors.from_request(self.request)
        try:
            change = forms.read_form(body, edit)
            edited = await self.comments.edit(visitor.require_user(), self.comment, change)
        except Invalid as error:
            return self._page(visitor, forms.parse_form(body).get("content", ""), error.detail, error.status)
        path = f"{thread_path(edited.reply_to)}#comment-{self.comment}"
        return self.site.form_response(self.request, visitor, b"", path)

    async def ask(self) -> Response[str]:
        """Show an admin what a deletion does, before it is done."""
        visitor = await self.site.visitors.from_request(self.request)
        found = await self.comments.get(visitor.actor, self.comment)
        return await confirmation(
            self.request,
            self.site,
            "Reports",
            title=f"Delete the comment of {found.username}?",
            effects=[
                f"The text is deleted: “{truncate_text(found.content, MAX_EXCERPT_CHARACTERS)}”. Replies to it stay.",
                "This cannot be undone.",
            ],
            button="Delete the comment",
            back=f"{self.back}#comments",
        )

    async def delete(self, body: bytes) -> Response[str]:
        """Delete the comment. A second click changes nothing."""
        visitor = await self.site.visitors.from_request(self.request)
        with suppress(NotFound):  # deleted by an earlier click
            await self.comments.delete(visitor.require_user(), self.comment)
        return self.site.form_response(self.request, visitor, body, f"{self.back}#comments")

    def _page(self, visitor: Visitor, content: str, problem: str = "", status: int = 200) -> Response[str]:
        context: dict[str, Any] = {"back": self.back, "comment": self.comment, "content": content, "problem": problem}
        return self.site.page(
            self.request, visitor, "comment-edit.html", section=self.section, status=status, **context
        )
