"""Who reads posts, and what the viewer's own lists say about them: hidden authors, likes and bookmarks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from msgspec import Struct, field

from plaza.core.auth import Actor
from plaza.core.valkey import Arg
from plaza.social.keys import USER_BOOKMARKED, USER_FOLLOWING, USER_MUTED
from plaza.social.users import hiding_keys

Command = tuple[Arg, ...]

# The members of a list; False if there are too many to cache.
Members = frozenset[str] | Literal[False]


class ReadView(Struct):
    """The viewer, and what kind of list is read."""

    viewer: Actor | None
    users: bool = True  # include the authors' public profiles
    feed: bool = True  # leave out muted users
    followed: bool = False  # only users that the viewer follows
    created_after: int = 0  # leave out posts that were created before this time, Unix milliseconds

    def hiding_lists(self) -> list[str]:
        """Return the sorted sets of the users that are hidden from the viewer."""
        if self.viewer is None:
            return []
        muted = [USER_MUTED(self.viewer.name)] if self.feed else []
        return [*dict.fromkeys(hiding_keys(self.viewer)), *muted]

    def following(self) -> str | None:
        """Return the set that authors must be in, if there is one."""
        return USER_FOLLOWING(self.viewer.name) if self.viewer is not None and self.followed else None

    def relations(self) -> list[str]:
        """Return the lists that decide whose posts the viewer may see."""
        following = self.following()
        return [*self.hiding_lists(), *([following] if following else [])]

    def bookmarked(self) -> str | None:
        return USER_BOOKMARKED(self.viewer.name) if self.viewer is not None else None

    def lists(self) -> list[str]:
        """Return all lists of the viewer that a page depends on: first sorted sets, then sets."""
        return [key for key in (*self.hiding_lists(), self.bookmarked(), self.following()) if key is not None]

    def questions(self, names: Sequence[str], ids: Sequence[str] = ()) -> list[Question]:
        """Return what to ask about authors and posts, for lists whose members are not known."""
        following, bookmarked = self.following(), self.bookmarked()
        asked = [Question(key, names, "ZMSCORE") for key in self.hiding_lists() if names]
        if following is not None and names:
            asked.append(Question(following, names, "SMISMEMBER"))
        if bookmarked is not None and ids:
            asked.append(Question(bookmarked, ids, "ZMSCORE"))
        return asked


class Question(NamedTuple):
    """Which authors or posts are in a list of the viewer."""

    key: str
    items: Sequence[str]
    name: Literal["ZMSCORE", "SMISMEMBER"]

    def command(self) -> Command:
        return (self.name, self.key, *self.items)

    def answer(self, reply: Sequence[Any]) -> set[str]:
        """Return the items that are in the list."""
        absent = None if self.name == "ZMSCORE" else 0
        return {item for item, found in zip(self.items, reply, strict=True) if found is not absent}


def hidden_authors(view: ReadView, authors: Collection[str], members: Mapping[str, Collection[str]]) -> set[str]:
    """Return the authors whose posts the viewer must not see, given the members of the viewer's lists."""
    hidden: set[str] = set()
    for key in view.hiding_lists():
        hidden.update(members.get(key, ()))
    hidden &= set(authors)
    following = view.following()
    if following is not None and following in members:
        hidden.update(set(authors).difference(members[following]))
    return hidden


class ViewerMarks(Struct):
    """What a viewer's lists say about the posts of a page."""

    hidden: set[str] = field(default_factory=set)  # ids of posts, and usernames whose posts are all hidden
    liked: set[str] = field(default_factory=set)
    bookmarked: Collection[str] = ()
