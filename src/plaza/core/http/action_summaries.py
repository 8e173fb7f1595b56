"""What the admin actions of the security log do, in words."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from typing import Final

from plaza.core.http.routes import Route, Routes

# A shorter text is the beginning of too many words.
MIN_CHARACTERS: Final = 3


class ActionSummaries:
    """The first sentences of the summaries of admin actions, by action as the security log names it."""

    def __init__(self, groups: Iterable[Routes]) -> None:
        self._groups = groups

    @cached_property
    def by_action(self) -> dict[str, str]:
        """All summaries. Built when the log is first read."""
        routes: Iterable[Route] = (route for group in self._groups for route in group.routes)
        return {route.action: _first_sentence(route.summary) for route in routes if route.is_admin_action}

    def matching(self, text: str) -> list[str]:
        """Return the actions whose summaries have words that begin with the words of a text; none for other texts."""
        words = text.lower().split()
        if len(text) < MIN_CHARACTERS or not all(map(str.isalpha, words)):
            return []
        return [action for action, summary in self.by_action.items() if _has_words(summary, words)]


def _first_sentence(summary: str) -> str:
    return summary.partition(". ")[0].rstrip(".").replace("`", "")


def _has_words(summary: str, words: Iterable[str]) -> bool:
    found = re.findall(r"\w+", summary.lower())
    return all(any(each.startswith(word) for each in found) for word in words)
