"""Finds the session of a page request, without a round trip if this process has cached it.

A session stays cached until Valkey reports that it changed. Its limits and revocations are checked on every request, in
this process. `login:` is checked at most once a second, since it has all sessions and changes all the time. A cached
session is marked as seen only once in a while, so an idle session may end that much earlier.
"""

from __future__ import annotations

from time import monotonic
from typing import Any, Final

from msgspec import Struct

from plaza.core.tracking_cache import TrackingCache
from plaza.sessions.keys import LOGIN_TOKENS, SESSION_STATE
from plaza.sessions.model import Visit
from plaza.sessions.session_finder import SessionFinder

# Little compared with the idle limit of a week.
SEEN_EVERY_SECONDS: Final = 60.0
# How long a session that another service removed from `login:` may stay signed in here.
LOGIN_CHECK_SECONDS: Final = 1.0
# About 300 bytes each.
MAX_LOCAL_SESSIONS: Final = 20_000


class _LocalSession(Struct):
    visit: Visit
    login_checked_at: float  # by the monotonic clock


class SessionCache:
    """Sessions cached in this process."""

    def __init__(self, finder: SessionFinder) -> None:
        self._finder = finder
        self._store = finder.store
        self._valkey = self._store.functions.valkey
        self._local: TrackingCache[_LocalSession] = TrackingCache(self._valkey, MAX_LOCAL_SESSIONS)
        # Where sessions end after seconds, as in tests, each request is recorded at once.
        self._seen_every = min(SEEN_EVERY_SECONDS, self._store.limits.idle_seconds / 10)

    async def find(self, token: str) -> Visit | None:
        """Return the session of a token, or None. No round trip if it is cached, else one; one more to mark it as seen.

        No session is created: a request with a made-up cookie stores nothing.
        """
        local = self._local.get(SESSION_STATE(token))
        visit = await self._read(token) if local is None else await self._check_login(token, local)
        if visit is None or self._has_ended(visit):
            return None
        if not visit.replaced and self._store.clock.now_s() - visit.seen < self._seen_every:
            return visit
        return await self._finder.find(token)

    async def _read(self, token: str) -> Visit | None:
        fields = ("user", "since", "seen", "moved")
        visit, login = await self._valkey.tracked_with_batch(
            ("HMGET", SESSION_STATE(token), *fields),
            [("HGET", LOGIN_TOKENS(), token)],
            store=lambda row: self._keep(token, row),
        )
        if (visit is None and login is not None) or (visit is not None and _differs(visit, login)):
            return await self._finder.find(token)
        found: Visit | None = visit
        return found

    async def _check_login(self, token: str, local: _LocalSession) -> Visit | None:
        now = monotonic()
        if now - local.login_checked_at < LOGIN_CHECK_SECONDS:
            return local.visit
        if _differs(local.visit, await self._valkey.call("HGET", LOGIN_TOKENS(), token)):
            return await self._finder.find(token)
        local.login_checked_at = now
        return local.visit

    def _keep(self, token: str, row: list[Any]) -> Visit | None:
        user, since, seen, replaced_until = row
        if since is None:
            return None
        visit = Visit(token, user or None, float(since), float(seen), replaced=replaced_until is not None)
        self._local.put(SESSION_STATE(token), _LocalSession(visit, monotonic()))
        return visit

    def _has_ended(self, visit: Visit) -> bool:
        """Return whether the session has expired, or its user was deleted, renamed or suspended since."""
        now, limits = self._store.clock.now_s(), self._store.limits
        return (
            now - visit.seen > limits.idle_seconds
            or now - visit.since > limits.absolute_seconds
            or self._store.is_revoked(visit.user, visit.since)
        )


def _differs(visit: Visit, login: str | None) -> bool:
    """Return whether `login:` has another user than the session. A replaced token is never in `login:`."""
    return not visit.replaced and visit.user != login
