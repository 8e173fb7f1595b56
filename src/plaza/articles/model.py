"""The types of articles, and the validation that needs no Valkey."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from plaza.articles.keys import ANY_GROUP, NOTE
from plaza.core.comment_tree import CommentText, reply_to_parameter
from plaza.core.errors import NEVER_MISSING, Conflict, Invalid
from plaza.core.number_parsing import MAX_TIME_MS, parse_float
from plaza.core.paging import Page, Pagination
from plaza.core.validation_messages import described_pattern

MAX_TITLE_LENGTH: Final = 300
MAX_LINK_LENGTH: Final = 2_000
MAX_GROUPS: Final = 20

# A vote is worth 432 seconds: 200 votes lift an article by a day.
VOTE_SECONDS: Final = 432
# 8 December 2005; any fixed time gives the same order.
HOT_EPOCH_SECONDS: Final = 1_134_028_003
# In `hot`, ten times the votes are worth 12.5 hours.
HOT_SECONDS: Final = 45_000
# `best` is the lower bound of the Wilson interval with 80% confidence.
BEST_Z: Final = 1.281551565545

# `$` alone would accept a line break at the end.
_GROUP = described_pattern(
    "Use 1 to 50 characters of a-z, 0-9, - and _, beginning with a letter or digit", r"^[a-z0-9][a-z0-9_-]{0,49}$(?!\n)"
)

ArticleId = Annotated[int, Meta(ge=1, lt=10**16, description="The id of an article.", examples=[1042])]
GroupName = Annotated[
    str,
    Meta(
        pattern=_GROUP,
        description="1 to 50 characters of a-z, 0-9, `-` and `_`, beginning with a letter or digit.",
        examples=["python"],
    ),
    NEVER_MISSING,
]
# Other services may name groups otherwise. Plaza reads these and removes articles from them, but creates none.
AnyGroupName = Annotated[
    str,
    Meta(
        pattern=described_pattern(
            "Use 1 to 200 characters without braces and control characters", rf"^{ANY_GROUP}$(?!\n)"
        ),
        description="1 to 200 characters without braces and control characters.",
        examples=["python"],
    ),
    NEVER_MISSING,
]
Direction = Literal["up", "down"]
_COMMENT = f"[1-9][0-9]{{0,15}}-{NOTE}"
ArticleCommentId = Annotated[
    str,
    Meta(
        pattern=described_pattern("Must be the id of a comment on an article", rf"^{_COMMENT}$(?!\n)"),
        examples=["1042-7d1e4c3b2f5a4b8e8c6d1a9f0e2b3c4d"],
    ),
]
ArticleReplyTo = Annotated[str, reply_to_parameter(_COMMENT)]
Order = Literal["score", "time", "hot", "best", "top", "controversial"]
Period = Literal["day", "week", "all"]
# The length of a period; `all` has none.
PERIOD_SECONDS: Final = {"day": 86_400, "week": 7 * 86_400}


class BadCounter(Conflict):
    title, code = "The article counter has no usable value", "bad_counter"


class DuplicateLink(Conflict):
    title, code = "The link was posted within a day", "duplicate_link"


class VotingClosed(Conflict):
    title, code = "Voting on this article has ended", "voting_closed"


class TooManyGroups(Conflict):
    title, code = "The article is in too many groups", "too_many_groups"


class NewArticle(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An article to post."""

    title: Annotated[str, Meta(min_length=1, description="1 to 300 characters; surrounding whitespace is removed.")]
    link: Annotated[str, Meta(min_length=1, description="An http or https address.")]
    groups: Annotated[list[GroupName], Meta(max_length=MAX_GROUPS)] = []


class NewVote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    direction: Direction


class Article(msgspec.Struct, frozen=True):
    """An article as one viewer sees it. `vote` is the viewer's own vote, or null."""

    id: int
    title: str
    link: str
    author: str
    time: float
    votes: int
    score: float
    groups: list[str]
    vote: Direction | None = None
    commentsCount: int = 0


class NewArticleComment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    content: CommentText
    reply_to: ArticleCommentId | None = None


class ArticleCommentEdit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    content: CommentText


class ArticleComment(msgspec.Struct, frozen=True, omit_defaults=True):
    """A comment on an article. A deleted one that has replies has no author and no text, and `deleted` is true."""

    id: str
    article_id: int
    username: str
    avatar: str
    content: str
    created_at: int
    reply_to: str | None
    repliesCount: int
    deleted: bool | None = None
    edited_at: int | None = None


class ArticleCommentsPage(msgspec.Struct, frozen=True):
    comments: list[ArticleComment]
    pagination: Pagination


class DeletedArticleComment(msgspec.Struct, frozen=True):
    id: str
    deleted: bool = True


class Vote(msgspec.Struct, frozen=True):
    """An article's votes and score after a vote. `id` is the article's."""

    id: int
    votes: int
    score: float
    vote: Direction | None


class ArticleMembership(msgspec.Struct, frozen=True):
    """The groups an article is in. `id` is the article's."""

    id: int
    groups: list[str]


class DeletedArticle(msgspec.Struct, frozen=True):
    id: int
    deleted: bool = True


class ArticleGroup(msgspec.Struct, frozen=True):
    """A group and its number of articles. Its name is its id."""

    id: str
    name: str
    size: int


class ArticlesQuery(Page, frozen=True):
    """The query of a list of articles."""

    limit: Annotated[int, Meta(ge=1, le=100, description="The maximum number of items.")] = 25
    order: Order = "score"
    period: Annotated[Period, Meta(description="For `top`: articles posted in the last day or week, or all.")] = "all"

    def __post_init__(self) -> None:
        if self.period != "all" and self.order != "top":
            raise Invalid("Only the order `top` has a period.", field="period")


class ArticlesPage(msgspec.Struct, frozen=True):
    articles: list[Article]
    pagination: Pagination


class GroupsPage(msgspec.Struct, frozen=True):
    groups: list[ArticleGroup]
    pagination: Pagination


def parse_seconds(time: str | None) -> float:
    """A time as another service may have written it; 0 if it is missing, not a number or not a date."""
    seconds = parse_float(time)
    return seconds if 0 <= seconds <= MAX_TIME_MS / 1000 else 0.0


def score(time: float, votes: int) -> float:
    return time + VOTE_SECONDS * votes


# Control characters, lone surrogates and line breaks. Joiners are allowed: emoji and some scripts need them.
_FORBIDDEN_CATEGORIES: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
# Joiners and zero-width spaces: a title of these alone would be invisible.
_INVISIBLE_CATEGORIES: Final = frozenset({"Cf", "Zs"})


def clean_title(title: str) -> str:
    """The title as stored: trimmed, on one line. Raises Invalid."""
    title = title.strip()
    if not 1 <= len(title) <= MAX_TITLE_LENGTH:
        raise Invalid(f"The title must have 1 to {MAX_TITLE_LENGTH} characters.", field="title")
    categories = {unicodedata.category(character) for character in title}
    if categories & _FORBIDDEN_CATEGORIES:
        raise Invalid("The title must not contain line breaks or control characters.", field="title")
    if categories <= _INVISIBLE_CATEGORIES:
        raise Invalid("The title must contain visible characters.", field="title")
    return title


_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_IPV6: Final = re.compile(r"\[[0-9a-f:.]+\](:[0-9]*)?", re.IGNORECASE)
_SPACE_OR_CONTROL: Final = re.compile(r"[\s\x00-\x1f\x7f-\x9f\\]")


def clean_link(link: str) -> str:
    """The link as stored: scheme and host in lower case, without a default port. Raises Invalid."""
    link = link.strip()
    if not 1 <= len(link) <= MAX_LINK_LENGTH:
        raise Invalid(f"The link must have 1 to {MAX_LINK_LENGTH} characters.", field="link")
    try:
        link.encode()
        parts = urlsplit(link)
        host, port = parts.hostname, parts.port
    except ValueError as error:  # a lone surrogate, an unclosed bracket, a port that is not a number
        raise Invalid("The link must be a valid web address.", field="link") from error
    if parts.scheme not in _DEFAULT_PORTS:
        raise Invalid("The link must begin with http:// or https://.", field="link")
    if "@" in parts.netloc:
        # `https://bank.example@evil.example/` looks like one site and leads to another.
        raise Invalid("The link must not contain a username.", field="link")
    if not host or _SPACE_OR_CONTROL.search(link) or not _is_host(host, parts.netloc):
        raise Invalid("The link must be a valid web address.", field="link")
    netloc = f"[{host}]" if ":" in host else host
    if port is not None and port != _DEFAULT_PORTS[parts.scheme]:
        netloc = f"{netloc}:{port}"
    return parts._replace(netloc=netloc).geturl()


def _is_host(host: str, netloc: str) -> bool:
    if "[" in netloc:  # urlsplit reads `example.com[::1]` as `::1`
        return _IPV6.fullmatch(netloc) is not None
    return all(label and all(map(_is_allowed_in_host, label)) for label in host.removesuffix(".").split("."))


def _is_allowed_in_host(character: str) -> bool:
    """Letters of any script and combining marks, which many scripts need: browsers show `https://भारत.example/`."""
    return character.isalnum() or character in "-_" or unicodedata.category(character).startswith("M")


def link_digest(link: str) -> str:
    """The SHA-1 of a clean link's normal form, equal for links to the same page.

    The normal form has no fragment, and `/` for an empty path. `lua/articles.lua` computes the same.
    """
    found = re.match(r"([a-z]+://[^/?#]*)([^#]*)", link)
    assert found is not None, "the link must be clean"
    site, rest = found.groups()
    normal = site + (rest if rest.startswith("/") else f"/{rest}")
    return hashlib.sha1(normal.encode(), usedforsecurity=False).hexdigest()
