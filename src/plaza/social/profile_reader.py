"""Reads public profiles for a viewer, without users that are hidden from the viewer. One server only.

They are cached with the posts (`post_reader.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from plaza.core.auth import Actor
from plaza.social.keys import USER
from plaza.social.model import User
from plaza.social.post_reader import LoadedPosts, PostReader, is_short
from plaza.social.read_view import ReadView, hidden_authors, hiding_keys


class ProfileReader:
    def __init__(self, reader: PostReader) -> None:
        self._reader = reader

    async def one(self, viewer: Actor | None, name: str) -> User | None:
        """Return a profile, None if it is hidden or missing. One round trip. One server only."""
        if self._shows_cached(viewer, name):
            await self._reader.receive_invalidations()
            if self._shows_cached(viewer, name):
                return self._reader.profiles.get(USER(name))
        (found,) = await self.many(viewer, [name], listed=False)
        return found

    def _shows_cached(self, viewer: Actor | None, name: str) -> bool:
        return self._reader.profiles.get(USER(name)) is not None and (viewer is None or self.hides_none(viewer, [name]))

    def hides_none(self, viewer: Actor, names: Iterable[str]) -> bool:
        """Whether cached lists show that the viewer may see all of these users."""
        lists = [self._reader.lists.get(key) for key in hiding_keys(viewer)]
        return all(is_short(users) and not (users and users.intersection(names)) for users in lists)

    async def many(self, viewer: Actor | None, names: Sequence[str], *, listed: bool = True) -> list[User | None]:
        """Return profiles, None for one that is hidden or missing. One server only.

        One round trip; none if all are cached and the names were read from Valkey just now (`listed`).
        """
        view, loaded = ReadView(viewer, feed=False), LoadedPosts()
        hiding = view.hiding_lists
        if listed:
            loaded.profiles = {name: profile for name in names if (profile := self._reader.profiles.get(USER(name)))}
            loaded.lists = {key: known for key in hiding if (known := self._reader.lists.get(key)) is not None}
        missing = [name for name in names if name not in loaded.profiles]
        missing_lists = [key for key in hiding if key not in loaded.lists]
        questions = [each for each in view.questions(names) if not is_short(loaded.lists.get(each.key))]
        commands = [question.command() for question in questions]
        replies: list[Any] = []
        if missing or missing_lists:
            replies = await self._reader.load_missing(view, loaded, [], missing, missing_lists, commands)
        elif commands:
            replies = await self._reader.valkey.batch(commands)
        members: dict[str, Collection[str]] = {key: short for key, short in loaded.lists.items() if short is not False}
        members.update((each.key, each.answer(reply)) for each, reply in zip(questions, replies, strict=True))
        hidden = hidden_authors(view, names, members)
        return [None if name in hidden else loaded.profiles.get(name) for name in names]
