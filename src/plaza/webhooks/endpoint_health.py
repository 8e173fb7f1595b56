"""Whether an endpoint works, and how long to leave one alone that does not."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from plaza.webhooks.delivery_queue import QueuedEvent
from plaza.webhooks.model import CONCURRENCY, GIVE_UP_MS, MAX_FAILURES, SendOutcome, retry_wait_ms

GONE: Final = "The endpoint answered 410 Gone."


class EndpointHealth(Struct):
    """The failures of an endpoint since its last success. Times are Unix milliseconds; 0 means none."""

    failures: int = 0
    failing_since: int = 0
    due_ms: int = 0  # no request before: the endpoint is down, or asked for a pause

    @property
    def is_down(self) -> bool:
        return self.failures >= MAX_FAILURES

    @property
    def max_requests(self) -> int:
        """How many requests the endpoint may have at the same time."""
        return 1 if self.is_down else CONCURRENCY

    def failed(self, now_ms: int, retry_after_ms: int) -> None:
        """Count a failure, after which the endpoint may have asked for a pause."""
        self.failures += 1
        self.failing_since = self.failing_since or now_ms
        wait_ms = retry_wait_ms(self.failures - MAX_FAILURES + 1) if self.is_down else 0
        if wait_ms or retry_after_ms:
            self.due_ms = now_ms + max(wait_ms, retry_after_ms)

    def succeeded(self) -> None:
        """Forget the failures, but not a pause that the endpoint asked for in the response to another request."""
        if self.is_down:
            self.due_ms = 0
        self.failures = self.failing_since = 0

    def reason_to_give_up(self, event: QueuedEvent, outcome: SendOutcome, now_ms: int) -> str | None:
        """Return why the endpoint is disabled after a failure; None if it is not."""
        if outcome.is_gone:
            return GONE
        if self.is_down and now_ms - self.failing_since >= GIVE_UP_MS:
            return f"Every request failed for three days. The last one: {outcome.reason}"
        if now_ms - event.first_attempt_at >= GIVE_UP_MS:
            return f"An event of the type {event.type} failed for three days: {outcome.reason}"
        return None
