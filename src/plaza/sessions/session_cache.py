"""Who is behind a cookie, for pages that only show something: without a round trip for who was here a moment ago.

A session that was recognised stays at hand until Valkey says that it changed: it ended, was replaced, or was seen
elsewhere. Its limits and its person's standing are looked at every time, which asks nobody. Being seen is written down
once in a while and not for every page, so an idle session may end that much earlier than it would have.
"""

from __future__ import annotations

from typing import Any, Final

from plaza.core.clock import Clock
from plaza.core.tracking_cache import TrackingCache
from plaza.sessions.service import Sessions, Visit
from plaza.shop.keys import SHOP_SESSION

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
        self._hot: TrackingCache[Visit] = TrackingCache(self._valkey, MOST)
        # Where sessions end after seconds, as some shops and tests want it, being seen counts at once.
        self._seen_every = min(SEEN_EVERY_SECONDS, sessions.limits.idle / 10)

    async def visit(self, token: str) -> Visit | None:
        """The session of a token; None if there is none. No round trip if it is at hand, else one; another to be seen.

        Nothing is begun: whoever looks at pages with a cookie that they made up leaves nothing behind.
        """
        found = self._hot.get(SHOP_SESSION(token))
        if found is None:
            found = await self._valkey.tracked(
                "HMGET", SHOP_SESSION(token), "user", "since", "seen", "moved", store=lambda row: self._kept(token, row)
            )
        if found is None or self._is_over(found):
            return None
        if not found.moved and self._clock.now_s() - found.seen < self._seen_every:
            return found
        visit, _ = await self._sessions.visit(token)
        return visit

    def _kept(self, token: str, row: list[Any]) -> Visit | None:
        user, since, seen, moved = row
        if since is None:
            return None
        visit = Visit(token, user or None, float(since), float(seen), moved=moved is not None)
        self._hot.put(SHOP_SESSION(token), visit)
        return visit

    def _is_over(self, visit: Visit) -> bool:
        """Whether its time is up, or its person was deleted, renamed or suspended since."""
        now, limits = self._clock.now_s(), self._sessions.limits
        return (
            now - visit.seen > limits.idle
            or now - visit.since > limits.absolute
            or self._sessions.is_cut_off(visit.user, visit.since)
        )
