"""What an article is, and the rules that need no Valkey."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from plaza.core.errors import Conflict, Invalid
from plaza.core.paging import Page, Pagination
from plaza.core.validation_messages import in_words

LONGEST_TITLE: Final = 300
LONGEST_LINK: Final = 2_000
MOST_GROUPS: Final = 20

# A vote is worth 432 seconds: 200 of them keep an article where it is for a day.
VOTE_SECONDS: Final = 432

# `$` alone would let a line break pass at the end.
_GROUP = in_words(
    "A group's name has 1 to 50 of a-z 0-9 - _ and begins with a letter or digit", r"^[a-z0-9][a-z0-9_-]{0,49}$(?!\n)"
)

ArticleId = Annotated[int, Meta(ge=1, lt=10**16, description="Id of an article.")]
GroupName = Annotated[
    str, Meta(pattern=_GROUP, description="1 to 50 of a-z, 0-9, `-` and `_`, beginning with a letter or digit.")
]
Direction = Literal["up", "down"]
Order = Literal["score", "time", "hot", "best", "controversial"]


class DuplicateLink(Conflict):
    title, code = "This link was posted within a day", "duplicate_link"


class VotingClosed(Conflict):
    title, code = "Voting on this article has ended", "voting_closed"


class TooManyGroups(Conflict):
    title, code = "The article is in too many groups", "too_many_groups"


class NewArticle(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An article to be posted."""

    title: Annotated[str, Meta(description="1 to 300 characters; space around it is removed.")]
    link: Annotated[str, Meta(description="An http or https address.")]
    groups: Annotated[list[GroupName], Meta(max_length=MOST_GROUPS)] = []


class NewVote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    direction: Direction


class Article(msgspec.Struct, frozen=True):
    """An article, as one viewer sees it. `vote` is the viewer's own, null if there is none."""

    id: int
    title: str
    link: str
    author: str
    time: float
    votes: int
    score: float
    groups: list[str]
    vote: Direction | None = None


class Vote(msgspec.Struct, frozen=True):
    """Where an article stands after a vote. `id` is the article's."""

    id: int
    votes: int
    score: float
    vote: Direction | None


class Membership(msgspec.Struct, frozen=True):
    """The groups an article is in. `id` is the article's."""

    id: int
    groups: list[str]


class Deleted(msgspec.Struct, frozen=True):
    id: int
    deleted: bool = True


class Group(msgspec.Struct, frozen=True):
    """A group and how many articles it has. Its name is what it is known by."""

    id: str
    name: str
    size: int


class ArticlesQuery(Page, frozen=True):
    """A page of articles: 25, as on a front page."""

    limit: Annotated[int, Meta(ge=1, le=100, description="How many at most.")] = 25
    order: Order = "score"


class ArticlesPage(msgspec.Struct, frozen=True):
    articles: list[Article]
    pagination: Pagination


class GroupsPage(msgspec.Struct, frozen=True):
    groups: list[Group]
    pagination: Pagination


def score(time: float, votes: int) -> float:
    return time + VOTE_SECONDS * votes


# Control characters, halves of surrogate pairs, and what breaks a line. Joiners stay: emoji and scripts need them.
_UNFIT: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
# Joiners and spaces of no width: alone they are no title.
_UNSEEN: Final = frozenset({"Cf", "Zs"})


def clean_title(title: str) -> str:
    """A title as it is kept: without space around it, in one line."""
    title = title.strip()
    if not 1 <= len(title) <= LONGEST_TITLE:
        raise Invalid(f"The title has 1 to {LONGEST_TITLE} characters.", field="title")
    kinds = {unicodedata.category(character) for character in title}
    if kinds & _UNFIT:
        raise Invalid("The title holds a line break or a control character.", field="title")
    if kinds <= _UNSEEN:
        raise Invalid("The title has nothing to see in it.", field="title")
    return title


_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_IPV6: Final = re.compile(r"\[[0-9a-f:.]+\](:[0-9]*)?", re.IGNORECASE)
_SPACE_OR_CONTROL: Final = re.compile(r"[\s\x00-\x1f\x7f-\x9f\\]")


def clean_link(link: str) -> str:
    """A link as it is kept: scheme and host in lower case, without a default port."""
    link = link.strip()
    if not 1 <= len(link) <= LONGEST_LINK:
        raise Invalid(f"The link has 1 to {LONGEST_LINK} characters.", field="link")
    try:
        link.encode()
        parts = urlsplit(link)
        host, port = parts.hostname, parts.port
    except ValueError as error:  # half a surrogate, an unclosed bracket, a port that is no number
        raise Invalid("The link is not a valid address.", field="link") from error
    if parts.scheme not in _DEFAULT_PORTS:
        raise Invalid("The link must begin with http:// or https://.", field="link")
    if "@" in parts.netloc:
        # `https://bank.example@evil.example/` reads as one place and leads to another.
        raise Invalid("The link must not hold a user name.", field="link")
    if not host or _SPACE_OR_CONTROL.search(link) or not _is_host(host, parts.netloc):
        raise Invalid("The link is not a valid address.", field="link")
    place = f"[{host}]" if ":" in host else host
    if port is not None and port != _DEFAULT_PORTS[parts.scheme]:
        place = f"{place}:{port}"
    return parts._replace(netloc=place).geturl()


def _is_host(host: str, netloc: str) -> bool:
    if "[" in netloc:  # urlsplit takes `example.com[::1]` for `::1`
        return _IPV6.fullmatch(netloc) is not None
    return all(label and all(map(_is_in_names, label)) for label in host.removesuffix(".").split("."))


def _is_in_names(character: str) -> bool:
    """Letters of any script, with the marks that many scripts need: browsers show `https://भारत.example/`."""
    return character.isalnum() or character in "-_" or unicodedata.category(character).startswith("M")


def link_digest(link: str) -> str:
    """What two links have in common that lead to the same place. `lua/articles.lua` has the same rule.

    The fragment is the browser's own business, and no path is the path `/`.
    """
    found = re.match(r"([a-z]+://[^/?#]*)([^#]*)", link)
    assert found is not None, "only clean links have a digest"
    place, rest = found.groups()
    normal = place + (rest if rest.startswith("/") else f"/{rest}")
    return hashlib.sha1(normal.encode(), usedforsecurity=False).hexdigest()
