"""Every key of `live`. An event and a session each have an *audience*: the same nine keys, under their own name.

The documented keys say who was seen and when; they are source data. The additional keys hold what a count would
otherwise have to read from every viewer: countries, groups, viewers who left, and results that are not in SQL yet. So
a count costs the same with ten viewers and with a million. `#` is in no id, so every name can be read in one way only.
"""

from __future__ import annotations

from typing import Any

from plaza.core.keyspace import Catalogue, HashField, Key, KeyAccess, KeyType

RETENTION = "until the event has been silent for `PLAZA_LIVE_RETENTION_DAYS`"


def _for_session(value: Any) -> Any:
    """Turn a text about an event's key into the text about the same key of a session."""
    if isinstance(value, str):
        for event, session in (("<event>", "<session>"), ("<EVENT_ID>", "<SESSION_ID>"), ("Event", "Session")):
            value = value.replace(event, session)
        return value.replace("an event", "a session").replace("the event", "the session")
    return value


def _event_and_session(pattern: str, type: KeyType, help: str, **details: Any) -> tuple[Key, Key]:
    """Return a key of an event's audience and the same key of a session's."""
    details = {"read": KeyAccess.ADMIN, "lifetime": RETENTION, **details}
    # A session's keys live as long as its event's.
    session = {name: value if name == "lifetime" else _for_session(value) for name, value in details.items()}
    return (
        Key(pattern, type, help, owner="event", **details),
        Key(_for_session(pattern), type, _for_session(help), owner="session", **session),
    )


EVENT_HEARTBEAT, SESSION_HEARTBEAT = _event_and_session(
    "<event>#Event#Heartbeat",
    "zset",
    "When each viewer of an event was last seen. A viewer with a score in the window is alive.",
    contains="viewer",
    element_regex="<viewer>",
    score="last heartbeat, Unix milliseconds; of a viewer who left, 245,001 ms before leaving, so outside any window",
    document="<EVENT_ID>#Event#Heartbeat",
)
EVENT_STATISTICS, SESSION_STATISTICS = _event_and_session(
    "<event>#Event#Statistics",
    "zset",
    "Address, groups and country of each viewer of an event. Plaza keeps one member per viewer, of the last heartbeat; "
    "of several that other services wrote, the latest counts.",
    contains="`<viewer>#<address>#<group>…#<country>`; groups sorted, an empty part if there are none",
    element_regex="<viewer><details>",
    score="that of the viewer in `<event>#Event#Heartbeat`",
    document="<EVENT_ID>#Event#Statistics",
)
EVENT_ATTENDED, SESSION_ATTENDED = _event_and_session(
    "<event>#EventAttendedUsers",
    "set",
    "All viewers that an event ever had.",
    contains="viewer",
    element_regex="<viewer>",
    document="<EVENT_ID>#EventAttendedUsers",
)


def _viewing_key(pattern: str, help: str, document: str, **details: Any) -> Key:
    return Key(
        pattern,
        "zset",
        help,
        contains="viewer",
        element_regex="<viewer>",
        score="Unix milliseconds",
        owner="event",
        lifetime=RETENTION,
        read=KeyAccess.ADMIN,
        document=f"<EVENT_ID>#<SESSION_ID(optional)>#<LOCATION>#{document}",
        **details,
    )


_END_HELP = "The end of that viewing session, or the last heartbeat while it goes on."

VIEWING_START = _viewing_key(
    "<event>#<location>#ViewingSessionStart",
    "The start of each viewer's latest viewing session at a location, outside any session.",
    "ViewingSessionStart",
)
VIEWING_END = _viewing_key("<event>#<location>#ViewingSessionEnd", _END_HELP, "ViewingSessionEnd")
SESSION_VIEWING_START = _viewing_key(
    "<event>#<session>#<location>#ViewingSessionStart",
    "The start of each viewer's latest viewing session at a location, in a session of the event.",
    "ViewingSessionStart",
)
SESSION_VIEWING_END = _viewing_key("<event>#<session>#<location>#ViewingSessionEnd", _END_HELP, "ViewingSessionEnd")

_AUDIENCE_FIELDS = (
    HashField("born", "when these keys were created, Unix milliseconds; a purge removes them", KeyAccess.ADMIN),
    HashField("peak", "the most viewers alive at once", KeyAccess.ADMIN),
    HashField("peak_at", "when that was, Unix milliseconds", KeyAccess.ADMIN),
    HashField("slot", "the latest five minutes with a heartbeat and no record yet: start / 300,000", KeyAccess.ADMIN),
    HashField("recorded", "the latest five minutes with a record: start / 300,000", KeyAccess.ADMIN),
    HashField("frontier", "viewers with a heartbeat since then are in `Counts`, Unix milliseconds", KeyAccess.ADMIN),
    HashField("surplus", "statistics members beyond one per viewer, at the last look", KeyAccess.ADMIN),
    HashField("followed", "when heartbeats of another service were last counted, Unix milliseconds", KeyAccess.ADMIN),
    HashField("window", "how long a heartbeat counts, milliseconds, if longer than the setting", KeyAccess.ADMIN),
    HashField("window_until", "until when this window is valid", KeyAccess.ADMIN),
    HashField("later_window", "a shorter window that is valid for longer", KeyAccess.ADMIN),
    HashField("later_until", "until when that window is valid", KeyAccess.ADMIN),
)
EVENT_INFO = Key(
    "<event>#Event#Info",
    "hash",
    "The totals of an event and what an admin declared.",
    owner="event",
    fields=(
        *_AUDIENCE_FIELDS,
        HashField("logins", "viewing sessions begun", KeyAccess.ADMIN),
        HashField("announced", "the last peak that an event `event.peaked` told", KeyAccess.ADMIN),
        HashField("awake", "1 while the event is in `live:awake`", KeyAccess.ADMIN),
        HashField("declared", "1 if an admin declared the event", KeyAccess.ADMIN),
        HashField("title", "as an admin declared it", KeyAccess.ADMIN),
        HashField("starts_at", "when it starts, as an admin declared it, Unix milliseconds", KeyAccess.ADMIN),
        HashField("description", "what viewers can expect, as an admin declared it", KeyAccess.ADMIN),
    ),
    lifetime=RETENTION + "; of a declared event, permanent",
    read=KeyAccess.ADMIN,
)
SESSION_INFO = Key(
    "<session>#Session#Info",
    "hash",
    "The totals of a session and its event.",
    owner="session",
    fields=(
        *_AUDIENCE_FIELDS,
        HashField("declared", "1 if an admin declared the session", KeyAccess.ADMIN),
        HashField("event", "the one event it belongs to", KeyAccess.ADMIN, value_regex="<event>"),
    ),
    lifetime=RETENTION + "; of a declared session, permanent",
    read=KeyAccess.ADMIN,
)
EVENT_VIEWERS = Key(
    "<event>#Event#Viewers",
    "hash",
    "What Plaza last counted for each viewer, so that the next heartbeat finds what it replaces.",
    contains="viewer → `+` if they are in `Counts`, else `-`; country and groups, joined by `#`; then one line per "
    "open place: `<session>#<location>` or `<location>`, latest first; `#` and the last place if none is open",
    element_regex="<viewer>",
    value_regex=r"[+-][A-Z]{2}(?:#[^\n]*)?\n.+",
    owner="event",
    lifetime=RETENTION,
    read=KeyAccess.ADMIN,
)
SESSION_VIEWERS = Key(
    "<session>#Session#Viewers",
    "hash",
    "What Plaza last counted for each viewer of a session, without places.",
    contains="viewer → `+` if they are in `Counts`, else `-`; country and groups, joined by `#`; a second line `#` "
    "if they left",
    element_regex="<viewer>",
    value_regex=r"[+-][A-Z]{2}(?:#[^\n]*)?(?:\n#)?",
    owner="session",
    lifetime=RETENTION,
    read=KeyAccess.ADMIN,
)
EVENT_COUNTS, SESSION_COUNTS = _event_and_session(
    "<event>#Event#Counts",
    "hash",
    "Viewers of an event with a heartbeat since `frontier` in `Info`, by country and by group.",
    contains="`c#<country>` or `g#<group>` → viewers",
    element_regex="[cg]#<viewer>",
    value_regex="<count>",
)
EVENT_GROUP_NAMES, SESSION_GROUP_NAMES = _event_and_session(
    "<event>#Event#GroupNames",
    "hash",
    "The groups of an event, declared or seen.",
    contains="group → 1",
    element_regex="<viewer>",
    value_regex="<count>",
)
EVENT_LEFT, SESSION_LEFT = _event_and_session(
    "<event>#Event#Left",
    "zset",
    "Viewers who left a place of an event and have sent no heartbeat from another place since.",
    contains="viewer",
    element_regex="<viewer>",
    score="when they left, Unix milliseconds; 2^42 more if they still had another place open",
)
EVENT_RECORDS, SESSION_RECORDS = _event_and_session(
    "<event>#Event#Records",
    "hash",
    "Five-minute records of an event that are not in SQL yet.",
    contains="end of the five minutes, Unix milliseconds → the statistics at that time, JSON",
    element_regex="<ms>",
    value_regex=r"\{.*\}",
    lifetime="until the worker has written them to SQL",
)
EVENT_ROOMS = Key(
    "<event>#Event#Rooms",
    "hash",
    "The places with viewing sessions: a location, in a session or not.",
    contains="`<session>#<location>` or `<location>` → the last viewing session that was collected: `<end> <viewer>`",
    element_regex="<place>",
    owner="event",
    lifetime=RETENTION,
    read=KeyAccess.ADMIN,
)
EVENT_SESSIONS = Key(
    "<event>#Event#Sessions",
    "set",
    "The sessions of an event, declared or seen.",
    contains="session",
    element_regex="<session>",
    owner="event",
    lifetime=RETENTION + "; of a declared event, permanent",
    read=KeyAccess.ADMIN,
)
EVENT_ENDED = Key(
    "<event>#Event#Ended#<digest>",
    "string",
    "Marks a viewing session that a viewer ended: it does not continue with the next heartbeat at the place.",
    contains="when it ended, Unix milliseconds; the name has the SHA-1 of `<viewer>#<place>`",
    element_regex="<ms>",
    owner="event",
    lifetime="as long as the viewer would have counted as alive",
    ttl_seconds=86_400,
    read=KeyAccess.ADMIN,
)
EVENT_FINISHED = Key(
    "<event>#Event#Finished",
    "zset",
    "Viewing sessions that have ended and are not in SQL yet.",
    contains="`<viewer>#<start>#<place>`",
    element_regex="<viewer>#<ms>#<place>",
    score="end, Unix milliseconds",
    owner="event",
    lifetime="until the worker has written them to SQL",
    read=KeyAccess.ADMIN,
)
EVENT_REPORTS = Key(
    "<event>#Event#Reports",
    "hash",
    "What players reported with heartbeats, without viewers: times in buckets, sums, devices and referring sites.",
    contains="`start#<country>#<bucket>`, `buffering#<country>#<bucket>`, `reports#<country>#0`, `stalls#<country>#0`, "
    "`errors#<country>#0`, the same with `_device` or `_site` after the first word (`start_device#phone#<bucket>`), "
    "`device#<device>#0`, `referrer#<site>#0` (no site: all beyond the first 100, for quality beyond the first 20) "
    "→ count; `referrers##0`, `sites##0` → number of sites",
    element_regex="[a-z_]+#[^#]*#<count>",
    value_regex="<count>",
    owner="event",
    lifetime=RETENTION,
    read=KeyAccess.ADMIN,
)
EVENT_FEED = Key(
    "<event>#Event#Feed",
    "stream",
    "The figures that clients of the event's stream receive, one entry per second.",
    contains="field `figures`: JSON",
    owner="event",
    lifetime="2 minutes",
    ttl_seconds=120,
    read=KeyAccess.ADMIN,
)
EVENT_FEED_TURN = Key(
    "<event>#Event#FeedTurn",
    "string",
    "A process is computing the figures of this second.",
    owner="event",
    lifetime="0.9 s",
    ttl_seconds=1,
    read=KeyAccess.ADMIN,
)
LIVE_AWAKE = Key(
    "live:awake",
    "zset",
    "Events that the worker has to record.",
    contains="event",
    element_regex="<event>",
    score="when it was added, Unix milliseconds",
    lifetime="until the event is silent and recorded",
    read=KeyAccess.ADMIN,
)
LIVE_EVENTS = Key(
    "live:events",
    "zset",
    "Events with raw keys, found by the worker or declared by an admin.",
    contains="event",
    element_regex="<event>",
    score="last known activity, Unix milliseconds",
    lifetime=RETENTION,
    read=KeyAccess.ADMIN,
)
LIVE_DECLARED = Key(
    "live:declared",
    "zset",
    "The events of `live:events` that an admin has declared, apart from them: viewers can create many others.",
    contains="event",
    element_regex="<event>",
    score="when it starts, was declared without a time, or was last recorded, Unix milliseconds",
    lifetime=RETENTION,
    read=KeyAccess.ADMIN,
)
LIVE_SALT = Key(
    "live:salt:<day>",
    "string",
    "The salt of a day's address hashes. Without it, no address can be found from its hash.",
    contains="32 random bytes, hexadecimal",
    element_regex="[0-9a-f]{64}",
    owner="day",
    lifetime="2 days",
    ttl_seconds=172_800,
)

# No `#`, which separates the parts of names and members. No braces, which mark the owner on a cluster.
ID = r"[^#{}\x00-\x1f\x7f-\x9f]{1,128}"

# Until countries and groups were counted in `Counts`.
RETIRED_EVENT_COUNTRIES, RETIRED_SESSION_COUNTRIES = _event_and_session(
    "<event>#Event#Countries", "zset", "Viewers of an event by country, of earlier releases.", retired=True
)
RETIRED_EVENT_GROUPS, RETIRED_SESSION_GROUPS = _event_and_session(
    "<event>#Event#Groups", "zset", "Viewers of an event by group, of earlier releases.", retired=True
)

CATALOGUE = Catalogue.from_module(
    "live",
    globals(),
    {
        "event": ID,
        "session": ID,
        "location": ID,
        "viewer": r"[^#\x00-\x1f\x7f]+",
        "details": "#[^#]*(?:#[^#]*)+",
        "place": f"(?:{ID}#)?{ID}",
        "day": r"\d{4}-\d{2}-\d{2}",
        "digest": "[0-9a-f]{40}",
    },
)

EVENT_AUDIENCE = (
    EVENT_HEARTBEAT,
    EVENT_STATISTICS,
    EVENT_ATTENDED,
    EVENT_INFO,
    EVENT_VIEWERS,
    EVENT_COUNTS,
    EVENT_GROUP_NAMES,
    EVENT_LEFT,
    EVENT_RECORDS,
)
SESSION_AUDIENCE = (
    SESSION_HEARTBEAT,
    SESSION_STATISTICS,
    SESSION_ATTENDED,
    SESSION_INFO,
    SESSION_VIEWERS,
    SESSION_COUNTS,
    SESSION_GROUP_NAMES,
    SESSION_LEFT,
    SESSION_RECORDS,
)


def event_audience(event: str) -> list[str]:
    """Return the nine keys of an event's audience, in the order that Lua expects."""
    return [key(event) for key in EVENT_AUDIENCE]


def session_audience(session: str) -> list[str]:
    """Return the nine keys of a session's audience, in the order that Lua expects."""
    return [key(session) for key in SESSION_AUDIENCE]


def event_keys(event: str) -> list[str]:
    """Return the twelve keys of an event that do not depend on a place."""
    return [*event_audience(event), EVENT_ROOMS(event), EVENT_SESSIONS(event), EVENT_FINISHED(event)]


def viewing_keys(event: str, session: str, location: str) -> list[str]:
    """Return the start key and the end key of a place; `session` is empty outside any session."""
    if session:
        return [SESSION_VIEWING_START(event, session, location), SESSION_VIEWING_END(event, session, location)]
    return [VIEWING_START(event, location), VIEWING_END(event, location)]


def join_place(session: str, location: str) -> str:
    """Return a place as the additional keys write it."""
    return f"{session}#{location}" if session else location


def split_place(place: str) -> tuple[str, str]:
    """Return the session (empty for none) and the location of a place."""
    session, separator, location = place.partition("#")
    return (session, location) if separator else ("", session)
