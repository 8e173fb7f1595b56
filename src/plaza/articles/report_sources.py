"""What users can report of articles: articles and comments on them."""

from __future__ import annotations

import re
from typing import Final

from plaza.articles.comments import ArticleComments, split_id
from plaza.articles.keys import NOTE
from plaza.articles.service import Articles
from plaza.core.auth import Actor
from plaza.core.errors import Invalid, NotFound
from plaza.core.report_source import ReportedThing

_ARTICLE: Final = re.compile("[1-9][0-9]{0,15}")
_COMMENT: Final = re.compile(f"[1-9][0-9]{{0,15}}-{NOTE}")


class ArticleReports:
    """Articles."""

    kind: Final = "article"
    removal: Final = "delete"

    def __init__(self, articles: Articles) -> None:
        self._articles = articles

    async def find(self, viewer: Actor, id: str) -> ReportedThing:
        article = await self._articles.read(viewer, int(_require(_ARTICLE, id)))
        text = f"{article.title} {article.link}"
        return ReportedThing(author=article.author.removeprefix("user:"), text=text, url=f"/app/articles/{id}")

    async def remove(self, admin: Actor, id: str) -> None:
        await self._articles.delete(admin, int(id))


class ArticleCommentReports:
    """Comments on articles."""

    kind: Final = "article_comment"
    removal: Final = "delete"

    def __init__(self, comments: ArticleComments) -> None:
        self._comments = comments

    async def find(self, viewer: Actor, id: str) -> ReportedThing:
        comment = await self._comments.get(viewer, _require(_COMMENT, id))
        if comment.deleted:
            raise NotFound("No comment has this id.", id=id)
        url = f"/app/articles/{split_id(id)[0]}?thread={id}"
        return ReportedThing(author=comment.username, text=comment.content, url=url)

    async def remove(self, admin: Actor, id: str) -> None:
        await self._comments.delete(admin, id)


def _require(pattern: re.Pattern[str], id: str) -> str:
    if not pattern.fullmatch(id):
        raise Invalid("This is no id of such a thing.", field="id")
    return id
