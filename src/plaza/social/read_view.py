"""Who reads posts, and what the viewer's own lists say about them: hidden authors, likes and bookmarks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from msgspec import Struct, field

from plaza.core.auth import Actor
from plaza.core.valkey import Arg
from plaza.social.keys import USER_BLOCKED, USER_BLOCKED_BY, USER_BOOKMARKED, USER_FOLLOWING, USER_MUTED

Command = tuple[Arg, ...]

# The members of a list; False if there are too many to cache.
Members = frozenset[str] | Literal[False]


def hiding_keys(viewer: Actor) -> tuple[str, str]:
    """Return the sorted sets of users hidden from a viewer: those they block, and those who block them.

    A block does not hide a user from an admin, who could not moderate them otherwise. For admins both are the first.
    """
    own = USER_BLOCKED(viewer.name)
    return own, own if viewer.is_admin else USER_BLOCKED_BY(viewer.name)


class ReadView:
    """The viewer, what kind of list is read, and the viewer's lists that a page depends on."""

    def __init__(
        self,
        viewer: Actor | None,
        users: bool = True,
        feed: bool = True,
        followed: bool = False,
        created_after: int = 0,
    ) -> None:
        self.viewer = viewer
        self.users = users  # include the authors' public profiles
        self.feed = feed  # leave out muted users
        self.followed = followed  # only users that the viewer follows
        self.created_after = created_after  # leave out posts that were created before this time, Unix milliseconds
        self.hiding_lists: list[str] = []  # the sorted sets of the users that are hidden from the viewer
        self.following: str | None = None  # the set that authors must be in, if there is one
        self.bookmarked: str | None = None
        self.relations: list[str] = []  # the lists that decide whose posts the viewer may see
        self.lists: list[str] = []  # all of these: first sorted sets, then sets
        if viewer is not None:
            muted = [USER_MUTED(viewer.name)] if feed else []
            self.hiding_lists = [*dict.fromkeys(hiding_keys(viewer)), *muted]
            self.bookmarked = USER_BOOKMARKED(viewer.name)
            self.following = USER_FOLLOWING(viewer.name) if followed else None
            following = [self.following] if self.following is not None else []
            self.relations = [*self.hiding_lists, *following]
            self.lists = [*self.hiding_lists, self.bookmarked, *following]

    def questions(self, names: Sequence[str], ids: Sequence[str] = ()) -> list[Question]:
        """Return what to ask about authors and posts, for lists whose members are not known."""
        asked = [Question(key, names, "ZMSCORE") for key in self.hiding_lists if names]
        if self.following is not None and names:
            asked.append(Question(self.following, names, "SMISMEMBER"))
        if self.bookmarked is not None and ids:
            asked.append(Question(self.bookmarked, ids, "ZMSCORE"))
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
    names, hidden = set(authors), set[str]()
    for key in view.hiding_lists:
        hidden |= names.intersection(members.get(key, ()))
    if view.following is not None and view.following in members:
        hidden |= names.difference(members[view.following])
    return hidden


class ViewerMarks(Struct):
    """What a viewer's lists say about the posts of a page."""

    hidden: set[str] = field(default_factory=set)  # ids of posts, and usernames whose posts are all hidden
    liked: set[str] = field(default_factory=set)
    bookmarked: Collection[str] = ()
