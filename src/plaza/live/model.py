"""What is said about audiences, and the rules that need no server."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Final

from msgspec import Meta, Struct

from plaza.core.errors import Conflict, Forbidden
from plaza.core.validation_messages import described_pattern

# The window is two missed beats and 5 s of grace: a viewer in a lift is still a viewer.
BEAT_MS: Final = 30_000
# A viewer who beats less often than this tells too little of when they left. The longest window follows from it, 245 s,
# and must stay below five minutes, or a record would count people of the five minutes before.
LONGEST_BEAT_MS: Final = 120_000
SLOT_MS: Final = 300_000
UNKNOWN_COUNTRY: Final = "ZZ"
MOST_GROUPS: Final = 20

# No control characters of either kind: what viewers call a place is shown on admins' terminals.
_TEXT: Final = described_pattern(
    "Give 1 to 128 characters, none of # { } and no control characters", r"^[^#{}\x00-\x1f\x7f-\x9f]+(?![\s\S])"
)
Id = Annotated[str, Meta(pattern=_TEXT, min_length=1, max_length=128)]
EventId = Annotated[str, Meta(pattern=_TEXT, min_length=1, max_length=128, description="No `#`, `{` or `}`.")]
SessionId = EventId
Location = Annotated[
    str, Meta(pattern=_TEXT, min_length=1, max_length=128, description="Where: a page, a player, a room.")
]
UnixMs = Annotated[int, Meta(ge=0, le=4_102_444_800_000, description="Unix milliseconds.")]


class EventUndeclared(Forbidden):
    title, code = "Only declared events are taken", "event_undeclared"


class SessionOfAnotherEvent(Conflict):
    title, code = "The session belongs to another event", "session_of_another_event"


class TooManyPlaces(Conflict):
    title, code = "The event has too many sessions or locations", "too_many_places"


class EventNotSilent(Conflict):
    title, code = "The event is not silent", "still_live"


class Heartbeat(Struct, forbid_unknown_fields=True):
    """A viewer is there."""

    location: Location
    session_id: SessionId | None = None
    groups: Annotated[list[Id], Meta(max_length=MOST_GROUPS)] = []


class LeaveRequest(Struct, forbid_unknown_fields=True):
    """A viewer goes."""

    location: Location
    session_id: SessionId | None = None


class EventDeclaration(Struct, forbid_unknown_fields=True):
    """What an admin says of an event."""

    title: Annotated[str, Meta(max_length=500)] | None = None
    sessions: Annotated[list[SessionId], Meta(max_length=1_000)] = []


class HeartbeatResult(Struct):
    """The answer to a beat."""

    alive: int
    session_alive: int | None
    next_heartbeat_ms: int


class LeaveResult(Struct):
    """The answer to leaving: whether there was a viewing session to end."""

    ended: bool


class LiveEvent(Struct):
    """An event as declared."""

    id: str
    title: str | None
    declared: bool
    sessions: list[str]


class ViewerCount(Struct):
    count: int


class AudienceStatistics(Struct, rename="camel"):
    """An audience at one moment. Countries sum to the viewers; a viewer counts in each of their groups."""

    viewer_count: int
    timestamp: int
    count_by_user_group: dict[str, int]
    count_by_viewing_country: dict[str, int]


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who beats, and from where."""

    name: str
    address: str  # as it is stored
    country: str
    groups: tuple[str, ...] | None = None  # those in the token, if it speaks of groups


def effective_groups(watcher: Viewer, said: list[str]) -> tuple[list[str], bool]:
    """The groups that count, sorted, and whether someone gave them: the token's if it speaks of any, else as said."""
    if watcher.groups is not None:
        return sorted({group for group in watcher.groups if is_valid_id(group)})[:MOST_GROUPS], True
    return sorted(set(said)), False


def is_valid_id(text: str) -> bool:
    """Whether a text can stand in a key or a member."""
    return len(text) <= 128 and re.match(_TEXT, text) is not None


class HeartbeatPace:
    """How often viewers should beat: every 30 s, or less often while that would be more beats than the target.

    A process knows how many viewers each event had when it last heard of it; that is nearly the same number in every
    process, since viewers' requests go to all of them. The interval moves in steps of 5 s, so that it is not written
    anew with every viewer who comes.
    """

    _STEP_MS = 5_000

    def __init__(self, beats_per_second: int) -> None:
        self._target = beats_per_second
        self._alive: dict[str, tuple[int, int]] = {}
        self._total = 0
        self._swept_ms = 0

    def heard(self, event: str, alive: int, now_ms: int) -> None:
        """An event has so many viewers."""
        before, _ = self._alive.get(event, (0, 0))
        self._alive[event] = (alive, now_ms)
        self._total += alive - before
        if now_ms - self._swept_ms > LONGEST_BEAT_MS:
            self._sweep(now_ms)

    def _sweep(self, now_ms: int) -> None:
        """Forget events that nobody beats for any more."""
        self._swept_ms = now_ms
        self._alive = {e: (n, at) for e, (n, at) in self._alive.items() if now_ms - at <= 2 * LONGEST_BEAT_MS}
        self._total = sum(n for n, _ in self._alive.values())

    @property
    def interval_ms(self) -> int:
        needed = self._total * 1000 // self._target
        steps = -(-needed // self._STEP_MS) * self._STEP_MS
        return min(max(BEAT_MS, steps), LONGEST_BEAT_MS)


class LiveFigures(Struct, rename="camel"):
    """What the stream sends every second."""

    viewer_count: int
    timestamp: int
    count_by_user_group: dict[str, int]
    count_by_viewing_country: dict[str, int]
    sessions: dict[str, int]
    max_concurrent: int
    total_login: int
    total_attended: int


class StatisticsRecords(Struct):
    statistics: list[AudienceStatistics]


class SessionFigures(Struct):
    """One session in an overview."""

    id: str
    active: int
    attended: int
    max_concurrent: int
    max_concurrent_at: int | None
    statistics: AudienceStatistics


class EventOverview(Struct):
    """All figures of an event."""

    id: str
    title: str | None
    timestamp: int
    window_ms: int
    active: int
    last_five_minutes: int
    all_time: int
    attended: int
    max_concurrent: int
    max_concurrent_at: int | None
    logins: int
    statistics: AudienceStatistics
    sessions: list[SessionFigures]


class ViewingStats(Struct):
    """Minutes watched, per viewer."""

    viewers: int
    mean: float
    median: float
    p90: float


def union_ms(spans: list[tuple[int, int]]) -> int:
    """How long at least one of the spans lasted."""
    total, until = 0, 0
    for start, end in sorted(spans):
        total += max(0, end - max(start, until))
        until = max(until, end)
    return total


def distribution(watched_ms: list[int]) -> ViewingStats:
    """Mean, median and the ninth tenth of times watched, in minutes."""
    if not watched_ms:
        return ViewingStats(0, 0.0, 0.0, 0.0)
    ordered = sorted(watched_ms)
    mean = sum(ordered) / len(ordered)
    return ViewingStats(len(ordered), *(round(ms / 60_000, 3) for ms in (mean, _at(ordered, 0.5), _at(ordered, 0.9))))


def _at(ordered: list[int], share: float) -> float:
    """The value that a share of the others do not exceed, interpolated between neighbours."""
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
