"""Limits how often a viewer or an address may do something, in this process.

The limits are not in Valkey: a few requests too many do no harm, and asking Valkey first would double the cost of a
heartbeat.
"""

from __future__ import annotations

from plaza.core.clock import Clock
from plaza.core.errors import TooFast
from plaza.core.rate_limits import Quota


class HeartbeatThrottle:
    """Limits heartbeats in this process: a burst of `quota.count`, then one at a time as the quota refills."""

    _MAX_SUBJECTS = 200_000

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._refilled_at: dict[str, float] = {}  # when a subject's quota is full again, monotonic seconds

    def wait_seconds(self, subject: str, quota: Quota) -> float:
        """Return the seconds until the subject may take one more; 0 or less if it may now."""
        now = self._clock.monotonic_s()
        return max(self._refilled_at.get(subject, now), now) + quota.seconds / quota.count - now - quota.seconds

    def take(self, subject: str, quota: Quota) -> None:
        """Count one heartbeat, or raise `TooFast`."""
        now, wait = self._clock.monotonic_s(), self.wait_seconds(subject, quota)
        refilled_at = max(self._refilled_at.get(subject, now), now) + quota.seconds / quota.count
        if wait > 0:
            raise TooFast("Too many heartbeats. Wait for `next_heartbeat_ms`.", retry_after=max(1.0, wait))
        if len(self._refilled_at) >= self._MAX_SUBJECTS:
            self._refilled_at = {name: at for name, at in self._refilled_at.items() if at > now}
        self._refilled_at[subject] = refilled_at
