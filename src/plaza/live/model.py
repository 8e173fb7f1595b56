"""The types of `live`, its errors, and the rules that need no server."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from plaza.core.errors import NEVER_MISSING, Conflict, Forbidden, TooFast, TooLarge
from plaza.core.text_patterns import PLAIN_LINE, PLAIN_TEXT
from plaza.core.validation_messages import described_pattern

# The default window is 65 s: two missed heartbeats and 5 s of grace, so a short network loss does not end a viewing
# session.
HEARTBEAT_INTERVAL_MS: Final = 30_000
GRACE_MS: Final = 5_000
# The longest window follows from this: 2 × 120 s + 5 s = 245 s. It must stay below SLOT_MS, or a five-minute record
# would count viewers of the five minutes before.
MAX_HEARTBEAT_INTERVAL_MS: Final = 120_000
# Leaving lowers a viewer's heartbeat score by this: 1 ms more than the longest window, so no window contains it.
AWAY_MS: Final = 2 * MAX_HEARTBEAT_INTERVAL_MS + GRACE_MS + 1
# One statistics record is kept for each slot of five minutes.
SLOT_MS: Final = 300_000
# Times stay below this until the year 2109. A score in `Left` has it added if the viewer watches elsewhere too.
SCORE_SHIFT: Final = 2**42
UNKNOWN_COUNTRY: Final = "ZZ"
MAX_GROUPS_PER_HEARTBEAT: Final = 20
MAX_SESSIONS: Final = 1_000
# The fields of `<event>#Event#Info` that an admin declares.
DECLARED_FIELDS: Final = ("title", "starts_at", "description")
# The start of an event whose start was removed.
NO_START: Final = 0
MAX_PLACES: Final = 10_000
# Any viewer can create sessions and places of an undeclared event, so it has lower limits.
MAX_UNDECLARED_SESSIONS: Final = 50
MAX_UNDECLARED_PLACES: Final = 200
# The ids and groups in the heartbeat that creates an undeclared event, in UTF-8.
MAX_NEW_EVENT_BYTES: Final = 1_024
# What a heartbeat has created, in the reply of `live_beat`.
NEW_PLACE: Final = 1
NEW_EVENT: Final = 2
NEW_VIEWING: Final = 4  # added to the others: the heartbeat began a viewing session
# Referring sites that are counted by name; viewers can claim any.
MAX_REFERRERS: Final = 100
# Sites whose playback quality is counted by name: up to 150 buckets each, which the worker writes to SQL.
MAX_QUALITY_SITES: Final = 20
# Viewers can claim any group, so claimed groups have a lower limit than groups from tokens.
MAX_CLAIMED_GROUPS: Final = 200
MAX_GROUPS: Final = 1_000
# Places one viewer can watch at once. One more ends the place with the oldest heartbeat.
MAX_OPEN_PLACES: Final = 20

# Control characters are refused because admins see these texts on terminals.
_TEXT: Final = described_pattern(
    "Give 1 to 128 characters, none of # { } and no control characters", r"^[^#{}\x00-\x1f\x7f-\x9f]+$(?!\n)"
)
Id = Annotated[str, Meta(pattern=_TEXT, min_length=1, max_length=128, examples=["press"]), NEVER_MISSING]
EventId = Annotated[
    str,
    Meta(pattern=_TEXT, min_length=1, max_length=128, description="No `#`, `{` or `}`.", examples=["launch"]),
    NEVER_MISSING,
]
SessionId = Annotated[
    str,
    Meta(pattern=_TEXT, min_length=1, max_length=128, description="No `#`, `{` or `}`.", examples=["keynote"]),
    NEVER_MISSING,
]
Location = Annotated[
    str, Meta(pattern=_TEXT, min_length=1, max_length=128, description="Where: a page, a player, a room.")
]
Site = Annotated[
    str,
    Meta(
        pattern=described_pattern("Give the host of a site, such as example.org", r"^[A-Za-z0-9._:\[\]-]+$(?!\n)"),
        max_length=100,
        description="The host of the page that led here.",
        examples=["example.org"],
    ),
]
UnixMs = Annotated[int, Meta(ge=0, le=4_102_444_800_000, description="Unix milliseconds.")]


class EventUndeclared(Forbidden):
    title, code = "Only declared events are accepted", "event_undeclared"


class SessionUndeclared(Forbidden):
    title, code = "Only declared sessions are accepted", "session_undeclared"


class TooManyEvents(Conflict):
    title, code = "There are too many undeclared events", "too_many_events"


class TooManyNewEvents(TooFast):
    title, code = "Too many new events", "too_many_new_events"


class TooManyNewPlaces(TooFast):
    title, code = "Too many new sessions and locations", "too_many_new_places"


class NewEventTooLarge(TooLarge):
    title, code = "The names of the new event are too long", "new_event_too_large"


class SessionOfAnotherEvent(Conflict):
    title, code = "The session belongs to another event", "session_of_another_event"


class TooManyPlaces(Conflict):
    title, code = "The event has too many sessions or locations", "too_many_places"


class EventNotSilent(Conflict):
    title, code = "The event is not silent", "still_live"


# Players measure fractions of milliseconds.
Milliseconds = Annotated[float, Meta(ge=0, le=600_000)]
EventCount = Annotated[int, Meta(ge=0, le=1_000)]


class PlaybackQuality(Struct, forbid_unknown_fields=True):
    """What a player has measured since the last report."""

    start_ms: Annotated[Milliseconds | None, Meta(description="From play to the first picture.")] = None
    buffering_ms: Annotated[Milliseconds | None, Meta(description="Time without a picture after the start.")] = None
    buffering_count: Annotated[EventCount, Meta(description="How often playback stopped to load.")] = 0
    errors: EventCount = 0


class Heartbeat(Struct, forbid_unknown_fields=True):
    """A viewer is watching. `device` and `referrer` count only if the server is set to count them."""

    location: Location
    session_id: SessionId | None = None
    groups: Annotated[list[Id], Meta(max_length=MAX_GROUPS_PER_HEARTBEAT)] = []
    quality: PlaybackQuality | None = None
    device: Literal["desktop", "phone", "tablet", "tv"] | None = None
    referrer: Site | None = None


class LeaveRequest(Struct, forbid_unknown_fields=True):
    """A viewer stops watching."""

    location: Location
    session_id: SessionId | None = None


class EventDeclaration(Struct, forbid_unknown_fields=True):
    """An event as an admin declares it. What is missing stays as it is."""

    title: Annotated[str, Meta(max_length=500, pattern=PLAIN_LINE)] | None = None
    sessions: Annotated[list[SessionId], Meta(max_length=MAX_SESSIONS)] = []
    groups: Annotated[list[Id], Meta(max_length=MAX_CLAIMED_GROUPS, description="Groups that viewers can claim.")] = []
    starts_at: Annotated[UnixMs, Meta(description="When it starts, Unix milliseconds; 0 removes the time.")] | None = (
        None
    )
    description: (
        Annotated[str, Meta(max_length=5_000, pattern=PLAIN_TEXT, description="What viewers can expect.")] | None
    ) = None


class HeartbeatResult(Struct):
    """How many viewers are alive, and when to send the next heartbeat."""

    alive: int
    session_alive: int | None
    next_heartbeat_ms: int


class LeaveResult(Struct):
    """Whether a viewing session ended."""

    ended: bool


class LiveEvent(Struct, omit_defaults=True):
    """An event and its sessions. `starts_at` and `description` are absent if they were not declared."""

    id: str
    title: str | None
    declared: bool
    sessions: list[str]
    starts_at: int | None = None
    description: str | None = None


class ViewerCount(Struct):
    count: int


class AudienceStatistics(Struct, rename="camel"):
    """An audience at one time. Countries sum to the viewers; a viewer counts in each of their groups."""

    viewer_count: int
    timestamp: int
    count_by_user_group: dict[str, int]
    count_by_viewing_country: dict[str, int]


class Viewer(Struct, frozen=True):
    """The sender of a heartbeat."""

    name: str
    address: str  # in the form that is stored
    country: str
    groups: tuple[str, ...] | None = None  # from the token; None if the token has no `groups` claim
    client: str = ""  # whose new events are limited: the address, of IPv6 the network; empty for no limit


def effective_groups(viewer: Viewer, claimed: list[str]) -> tuple[list[str], bool]:
    """Return the groups that count, sorted, and whether they come from the token. Token groups replace claimed ones."""
    if viewer.groups is not None:
        return sorted({group for group in viewer.groups if is_valid_id(group)})[:MAX_GROUPS_PER_HEARTBEAT], True
    return (sorted(set(claimed)) if len(claimed) > 1 else claimed), False


def is_valid_id(text: str) -> bool:
    """Whether a text can be part of a key or a member."""
    return len(text) <= 128 and re.match(_TEXT, text) is not None


class HeartbeatPace:
    """The interval between heartbeats: 30 s, or longer while heartbeats would exceed the target rate.

    Each process uses the viewer counts of the events it last served. All processes see nearly the same counts, because
    viewers' requests are spread over all of them. The interval moves in steps of 5 s, so that the window is not
    rewritten with every new viewer.
    """

    _STEP_MS = 5_000

    def __init__(self, heartbeats_per_second: int) -> None:
        self._target = heartbeats_per_second
        self._alive: dict[str, tuple[int, int]] = {}  # event → viewers, time of the last update
        self._total = 0
        self._cleaned_ms = 0

    def update(self, event: str, alive: int, now_ms: int) -> None:
        """Set the number of viewers of an event."""
        before, _ = self._alive.get(event, (0, 0))
        self._alive[event] = (alive, now_ms)
        self._total += alive - before
        if now_ms - self._cleaned_ms > MAX_HEARTBEAT_INTERVAL_MS:
            self._remove_silent_events(now_ms)

    def _remove_silent_events(self, now_ms: int) -> None:
        self._cleaned_ms = now_ms
        self._alive = {e: (n, at) for e, (n, at) in self._alive.items() if now_ms - at <= 2 * MAX_HEARTBEAT_INTERVAL_MS}
        self._total = sum(n for n, _ in self._alive.values())

    @property
    def interval_ms(self) -> int:
        needed = self._total * 1000 // self._target
        rounded_up = -(-needed // self._STEP_MS) * self._STEP_MS
        return min(max(HEARTBEAT_INTERVAL_MS, rounded_up), MAX_HEARTBEAT_INTERVAL_MS)


class LiveFigures(Struct, rename="camel", omit_defaults=True):
    """What the stream sends every second."""

    viewer_count: int
    timestamp: int
    count_by_user_group: dict[str, int]
    count_by_viewing_country: dict[str, int]
    sessions: dict[str, int]
    max_concurrent: int
    total_login: int
    total_attended: int
    starts_at: int | None = None  # as declared, absent if it was not; it may change while viewers watch


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
    """Return the total time that at least one of the spans covers."""
    total, until = 0, 0
    for start, end in sorted(spans):
        total += max(0, end - max(start, until))
        until = max(until, end)
    return total


def distribution(watched_ms: list[int]) -> ViewingStats:
    """Return mean, median and p90 of watch times, in minutes."""
    if not watched_ms:
        return ViewingStats(0, 0.0, 0.0, 0.0)
    ordered = sorted(watched_ms)
    mean = sum(ordered) / len(ordered)
    minutes = (round(ms / 60_000, 3) for ms in (mean, _quantile(ordered, 0.5), _quantile(ordered, 0.9)))
    return ViewingStats(len(ordered), *minutes)


def _quantile(ordered: list[int], share: float) -> float:
    """Return a quantile, interpolated between neighbours."""
    position = share * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)
