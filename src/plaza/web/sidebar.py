"""The sidebar: live events, trending tags, popular articles and groups. It is the same for all visitors, so it is
refreshed every ten seconds and not per request. It names no users, so it does not depend on blocks.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from markupsafe import Markup

from plaza.articles.lists import ArticleLists
from plaza.articles.model import Article, ArticlesQuery
from plaza.core.clock import Clock
from plaza.core.errors import PlazaError
from plaza.core.paging import Page
from plaza.live.schedule import EventSchedule, ScheduledEvent
from plaza.social.suggestions import SocialSuggestions
from plaza.web.rendering import fragment

REFRESH_MS: Final = 10_000
MAX_ENTRIES: Final = 4
# An event without viewers is over some time after its start: events have no end.
OVER_AFTER_MS: Final = 24 * 3_600_000
MAX_GROUPS: Final = 12
MAX_TAGS: Final = 8


class Sidebar:
    """The sidebar as HTML."""

    def __init__(
        self, schedule: EventSchedule | None, lists: ArticleLists | None, suggestions: SocialSuggestions, clock: Clock
    ) -> None:
        self._suggestions = suggestions
        self._schedule = schedule
        self._lists = lists
        self._clock = clock
        self._html = Markup("")
        self._articles_html = Markup("")
        self._groups: tuple[tuple[str, int], ...] = ()
        self._refresh_at_ms = 0
        self._refreshing: asyncio.Task[None] | None = None

    def html(self) -> Markup:
        """Return the current sidebar. If it is due, a refresh starts in the background."""
        now = self._clock.now_ms()
        if now >= self._refresh_at_ms:
            self._refresh_at_ms = now + REFRESH_MS
            self._refreshing = asyncio.create_task(self._refresh())
        return self._html

    def articles_html(self) -> Markup:
        """Return the sidebar without events, for event pages: they show the current viewers, not those of a refresh."""
        self.html()
        return self._articles_html

    def groups_html(self, current: str) -> Markup:
        """Return the article groups, which replace the sidebar on article pages."""
        self.html()
        return _groups_html(self._groups, current)

    async def wait_until_loaded(self) -> None:
        """Wait for the first refresh; later calls return at once."""
        self.html()
        if not self._html and self._refreshing is not None:
            await asyncio.shield(self._refreshing)

    async def _refresh(self) -> None:
        # Pages work without a sidebar, and the next refresh tries again.
        with contextlib.suppress(PlazaError):
            events, articles, tags = await asyncio.gather(
                self._list_events(), self._list_articles(), self._suggestions.trending_tags(MAX_TAGS)
            )
            now = self._clock.now_ms()
            self._html = fragment("sidebar.html", events=events[:MAX_ENTRIES], articles=articles, tags=tags, now=now)
            self._articles_html = fragment("sidebar.html", events=(), articles=articles, tags=(), now=now)

    async def _list_events(self) -> Sequence[ScheduledEvent]:
        """Return the events that have viewers, come or have just begun."""
        if self._schedule is None:
            return ()
        since = self._clock.now_ms() - OVER_AFTER_MS
        listed = await self._schedule.list_events()
        return [event for event in listed if event.watching or event.starts_at is None or event.starts_at > since]

    async def _list_articles(self) -> Sequence[Article]:
        """Return popular articles, and note the groups."""
        if self._lists is None:
            return ()
        articles, groups = await asyncio.gather(
            self._lists.list_articles(None, ArticlesQuery(limit=MAX_ENTRIES, order="hot")),
            self._lists.list_groups(Page(limit=MAX_GROUPS)),
        )
        self._groups = tuple((group.name, group.size) for group in groups.groups)
        return articles.articles


@lru_cache(256)
def _groups_html(groups: tuple[tuple[str, int], ...], current: str) -> Markup:
    return fragment("sidebar-groups.html", groups=groups, current=current)
