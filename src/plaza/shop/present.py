"""Who is behind a cookie, for pages that only show something: without a round trip for who was here a moment ago.

A session that was recognised stays at hand until Valkey says that it changed: it ended, was replaced, or was seen
elsewhere. Its limits and its person's standing are looked at every time, which asks nobody. Being seen is written down
once in a while and not for every page, so an idle session may end that much earlier than it would have.
"""

from __future__ import annotations

from typing import Any, Final

from plaza.core.clock import Clock
from plaza.core.hot import Hot
from plaza.shop.keys import SHOP_SESSION
from plaza.shop.sessions import Sessions, Visit

# Nothing against a week.
SEEN_EVERY_SECONDS: Final = 60.0
# Some 300 bytes each.
MOST: Final = 20_000


class Present:
    """Recognises sessions."""

    def __init__(self, sessions: Sessions, clock: Clock) -> None:
        self._sessions = sessions
        self._valkey = sessions.functions.valkey
        self._clock = clock
        self._hot: Hot[Visit] = Hot(self._valkey, MOST)
        # Where sessions end after seconds, as some shops and tests want it, being seen counts at once.
        self._seen_every = min(SEEN_EVERY_SECONDS, sessions.limits.idle / 10)

    async def visit(self, token: str) -> Visit:
        """The session of a token, or a new one. No round trip if it is at hand, else one; another to be seen again."""
        found = self._hot.get(SHOP_SESSION(token))
        if found is None:
            found = await self._valkey.tracked(
                "HMGET", SHOP_SESSION(token), "user", "since", "seen", "moved", keep=lambda row: self._kept(token, row)
            )
        if found is not None and self._is_good(found):
            return found
        visit, _ = await self._sessions.visit(token)
        return visit

    def _kept(self, token: str, row: list[Any]) -> Visit | None:
        user, since, seen, moved = row
        if since is None or moved is not None:
            return None
        visit = Visit(token, user or None, float(since), float(seen))
        self._hot.put(SHOP_SESSION(token), visit)
        return visit

    def _is_good(self, visit: Visit) -> bool:
        """Whether it can be taken as it is: seen lately, within its limits, and its person still here."""
        now = self._clock.now_s()
        return (
            now - visit.seen < self._seen_every
            and now - visit.since < self._sessions.limits.absolute
            and not self._sessions.is_cut_off(visit.user, visit.since)
        )
