"""What is going on elsewhere on the plaza, beside the posts: the same for everybody, so it is put together now and then
and not for each reader. It names no persons, so there is nobody in it who may be hidden from a reader.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import lru_cache
from typing import Final

from markupsafe import Markup

from plaza.articles.lists import ArticleLists
from plaza.articles.model import ArticlesQuery
from plaza.core.clock import Clock
from plaza.core.errors import PlazaError
from plaza.core.paging import Page
from plaza.live.schedule import EventSchedule
from plaza.web.rendering import fragment

# A visitor who sees a count that is this old has lost nothing.
RENEW_MS: Final = 10_000
SHOWN: Final = 4
GROUPS_SHOWN: Final = 12


class Noticeboard:
    """The notices, as HTML."""

    def __init__(self, programme: EventSchedule, lists: ArticleLists, clock: Clock) -> None:
        self._programme = programme
        self._lists = lists
        self._clock = clock
        self._notices = Markup("")
        self._groups: tuple[tuple[str, int], ...] = ()
        self._due_ms = 0
        self._renewing: asyncio.Task[None] | None = None

    def latest(self) -> Markup:
        """The notices as they were a moment ago. Now and then new ones are put together, and nobody waits for it."""
        now = self._clock.now_ms()
        if now >= self._due_ms:
            self._due_ms = now + RENEW_MS
            self._renewing = asyncio.create_task(self._renew())
        return self._notices

    def groups(self, current: str) -> Markup:
        """Groups of articles to choose from, instead of the notices."""
        self.latest()
        return _groups(self._groups, current)

    async def ready(self) -> None:
        """Wait for the first notices; after that there are always some."""
        self.latest()
        if not self._notices and self._renewing is not None:
            await asyncio.shield(self._renewing)

    async def _renew(self) -> None:
        # Without them a page is still a page, and the next one tries again.
        with contextlib.suppress(PlazaError):
            showings, articles, groups = await asyncio.gather(
                self._programme.all(),
                self._lists.list_articles(None, ArticlesQuery(limit=SHOWN, order="hot")),
                self._lists.list_groups(Page(limit=GROUPS_SHOWN)),
            )
            self._groups = tuple((group.name, group.size) for group in groups.groups)
            self._notices = fragment("notices.html", showings=showings[:SHOWN], articles=articles.articles)


@lru_cache(256)
def _groups(groups: tuple[tuple[str, int], ...], current: str) -> Markup:
    return fragment("groups.html", groups=groups, current=current)
