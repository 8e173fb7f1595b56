"""The waiting events of one endpoint that a worker has in memory: a queue per subject."""

from __future__ import annotations

import heapq
from collections import deque

from plaza.webhooks.delivery_queue import QueuedEvent


class SubjectQueues:
    """Some events of a queue, by subject. A subject is ready, in progress, or waits for a retry."""

    def __init__(self) -> None:
        self.size = 0
        self.last_read = "0-0"  # the last delivery that was read from the queue
        self._events: dict[str, deque[QueuedEvent]] = {}
        self._ready: deque[str] = deque()
        self._retries: list[tuple[int, str]] = []  # (due, subject)

    def add(self, event: QueuedEvent) -> None:
        """Add an event that is newer than all others."""
        self.last_read = event.delivery
        self.size += 1
        waiting = self._events.get(event.subject)
        if waiting is not None:
            waiting.append(event)
            return
        self._events[event.subject] = deque([event])
        self._make_ready(event)

    def take(self, now_ms: int) -> QueuedEvent | None:
        """Return an event that is due; its subject is in progress now. None if no event is due."""
        while self._retries and self._retries[0][0] <= now_ms:
            self._ready.append(heapq.heappop(self._retries)[1])
        return self._events[self._ready.popleft()][0] if self._ready else None

    def next_due_ms(self) -> int | None:
        """Return when the next retry is due; None if none waits."""
        return self._retries[0][0] if self._retries else None

    def done(self, event: QueuedEvent) -> None:
        """The event in progress is finished. The next one of its subject is ready."""
        waiting = self._events[event.subject]
        waiting.popleft()
        self.size -= 1
        if waiting:
            self._make_ready(waiting[0])
        else:
            del self._events[event.subject]

    def retry(self, event: QueuedEvent) -> None:
        """The event in progress failed, and is due again later."""
        self._events[event.subject][0] = event
        self._make_ready(event)

    def make_all_due(self) -> None:
        """Retry everything at once: the endpoint works again."""
        self._ready.extend(subject for _, subject in sorted(self._retries))
        self._retries.clear()

    def _make_ready(self, event: QueuedEvent) -> None:
        if event.due_ms:
            heapq.heappush(self._retries, (event.due_ms, event.subject))
        else:
            self._ready.append(event.subject)
