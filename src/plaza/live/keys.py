"""Every key of `live`. An event and a session each have an *audience*: the same ten keys, under their own name.

The documented keys say who was seen and when. What they cannot say without a look at every viewer (how many by country
and by group, who has left, what has not reached SQL yet) is kept in extra keys beside them, named in the same way, so
that no count costs more with a million viewers than with ten. `#` is in no id, so no name can be read in two ways.

In the extra sets by country and group one score holds two numbers: `n × 2^42 + time`, where `n` is the country's or the
group's number. A count by country at a moment is then one `ZCOUNT` in one key.
"""

from __future__ import annotations

from plaza.core.keyspace import Catalogue, Formula, HashField, Key, KeyAccess

RETENTION = "until the event has been silent for `PLAZA_LIVE_RETENTION_DAYS`"

# Address, groups and country are behind the viewer; an address may be anything without a `#`.
STATISTICS = "<viewer><rest>"

_LAST_BEAT = (
    "last heartbeat, Unix milliseconds; of a viewer who has left, 245,001 ms before leaving, so outside any window"
)

EVENT_HEARTBEAT = Key(
    "<event>#Event#Heartbeat",
    "zset",
    "Who has watched an event, and when each was last there. Alive are those with a score in the window.",
    contains="viewer",
    element_regex="<viewer>",
    score=_LAST_BEAT,
    owner="event",
    lifetime=RETENTION,
    invariants=(Formula("every member is in `<event>#EventAttendedUsers`"),),
    read=KeyAccess.ADMIN,
    document="<EVENT_ID>#Event#Heartbeat",
)
SESSION_HEARTBEAT = Key(
    "<session>#Session#Heartbeat",
    "zset",
    "The same for one session of an event.",
    contains="viewer",
    element_regex="<viewer>",
    score=_LAST_BEAT,
    owner="session",
    lifetime=RETENTION,
    invariants=(Formula("every member is in `<session>#SessionAttendedUsers`"),),
    read=KeyAccess.ADMIN,
    document="<SESSION_ID>#Session#Heartbeat",
)
EVENT_STATISTICS = Key(
    "<event>#Event#Statistics",
    "zset",
    "From where, and in which groups, an event is watched. Each viewer has one member: the one of the last beat.",
    contains="`<viewer>#<address>#<group>…#<country>`; groups sorted, an empty part if there are none",
    element_regex=STATISTICS,
    score="that of the viewer in `<event>#Event#Heartbeat`",
    owner="event",
    lifetime=RETENTION,
    read=KeyAccess.ADMIN,
    document="<EVENT_ID>#Event#Statistics",
)
SESSION_STATISTICS = Key(
    "<session>#Session#Statistics",
    "zset",
    "The same for one session.",
    contains="`<viewer>#<address>#<group>…#<country>`",
    element_regex=STATISTICS,
    score="that of the viewer in `<session>#Session#Heartbeat`",
    owner="session",
    lifetime=RETENTION,
    read=KeyAccess.ADMIN,
    document="<SESSION_ID>#Session#Statistics",
)
EVENT_ATTENDED = Key(
    "<event>#EventAttendedUsers",
    "set",
    "Everyone who was ever at an event.",
    contains="viewer",
    element_regex="<viewer>",
    owner="event",
    lifetime=RETENTION,
    read=KeyAccess.ADMIN,
    document="<EVENT_ID>#EventAttendedUsers",
)
SESSION_ATTENDED = Key(
    "<session>#SessionAttendedUsers",
    "set",
    "Everyone who was ever at a session.",
    contains="viewer",
    element_regex="<viewer>",
    owner="session",
    lifetime=RETENTION,
    read=KeyAccess.ADMIN,
    document="<SESSION_ID>#SessionAttendedUsers",
)
VIEWING_START = Key(
    "<event>#<location>#ViewingSessionStart",
    "zset",
    "When each viewer's latest viewing session at a location began, outside any session.",
    contains="viewer",
    element_regex="<viewer>",
    score="Unix milliseconds",
    owner="event",
    lifetime=RETENTION,
    invariants=(Formula("the same members as the `ViewingSessionEnd` beside it, none later than there"),),
    read=KeyAccess.ADMIN,
    document="<EVENT_ID>#<SESSION_ID(optional)>#<LOCATION>#ViewingSessionStart",
)
VIEWING_END = Key(
    "<event>#<location>#ViewingSessionEnd",
    "zset",
    "When it ended, or was last known to go on: written at every beat.",
    contains="viewer",
    element_regex="<viewer>",
    score="Unix milliseconds",
    owner="event",
    lifetime=RETENTION,
    read=KeyAccess.ADMIN,
    document="<EVENT_ID>#<SESSION_ID(optional)>#<LOCATION>#ViewingSessionEnd",
)
SESSION_VIEWING_START = Key(
    "<event>#<session>#<location>#ViewingSessionStart",
    "zset",
    "When each viewer's latest viewing session at a location began, in a session of the event.",
    contains="viewer",
    element_regex="<viewer>",
    score="Unix milliseconds",
    owner="event",
    lifetime=RETENTION,
    invariants=(Formula("the same members as the `ViewingSessionEnd` beside it, none later than there"),),
    read=KeyAccess.ADMIN,
    document="<EVENT_ID>#<SESSION_ID(optional)>#<LOCATION>#ViewingSessionStart",
)
SESSION_VIEWING_END = Key(
    "<event>#<session>#<location>#ViewingSessionEnd",
    "zset",
    "When it ended, or was last known to go on: written at every beat.",
    contains="viewer",
    element_regex="<viewer>",
    score="Unix milliseconds",
    owner="event",
    lifetime=RETENTION,
    read=KeyAccess.ADMIN,
    document="<EVENT_ID>#<SESSION_ID(optional)>#<LOCATION>#ViewingSessionEnd",
)

_AUDIENCE_FIELDS = (
    HashField(
        "born", "when these keys began, Unix milliseconds: a purge ends one life of an audience", KeyAccess.ADMIN
    ),
    HashField("peak", "most viewers alive at once", KeyAccess.ADMIN),
    HashField("peak_at", "when that was, Unix milliseconds", KeyAccess.ADMIN),
    HashField(
        "slot", "the last five minutes with a beat, until they are recorded: their start / 300,000", KeyAccess.ADMIN
    ),
    HashField(
        "window", "how long a beat keeps a viewer alive, milliseconds, if longer than the setting", KeyAccess.ADMIN
    ),
    HashField("window_until", "until when that was promised to somebody", KeyAccess.ADMIN),
    HashField("later_window", "a shorter window that was promised for longer", KeyAccess.ADMIN),
    HashField("later_until", "until when", KeyAccess.ADMIN),
)
EVENT_INFO = Key(
    "<event>#Event#Info",
    "hash",
    "What is known of an event as a whole.",
    owner="event",
    fields=(
        *_AUDIENCE_FIELDS,
        HashField("logins", "viewing sessions begun", KeyAccess.ADMIN),
        HashField("awake", "1 while the event is in `live:awake`", KeyAccess.ADMIN),
        HashField("declared", "1 if an admin declared the event", KeyAccess.ADMIN),
        HashField("title", "as an admin declared it", KeyAccess.ADMIN),
    ),
    lifetime=RETENTION + "; of a declared event, for ever",
    read=KeyAccess.ADMIN,
)
SESSION_INFO = Key(
    "<session>#Session#Info",
    "hash",
    "What is known of a session as a whole.",
    owner="session",
    fields=(
        *_AUDIENCE_FIELDS,
        HashField("event", "the one event it belongs to", KeyAccess.ADMIN, value_regex="<event>"),
    ),
    lifetime=RETENTION + "; of a declared session, for ever",
    read=KeyAccess.ADMIN,
)
EVENT_VIEWERS = Key(
    "<event>#Event#Viewers",
    "hash",
    "What each viewer's last beat said, so that the next one finds what it replaces.",
    contains="viewer → the rest of their statistics member, then, a line each, where they are watching: "
    "`<session>#<location>` or `<location>`, latest first; `#` and the last place if nowhere",
    element_regex="<viewer>",
    value_regex=r"#[^\n]*\n.+",
    owner="event",
    lifetime=RETENTION,
    read=KeyAccess.ADMIN,
)
SESSION_VIEWERS = Key(
    "<session>#Session#Viewers",
    "hash",
    "The same for a session, without places.",
    contains="viewer → the rest of their statistics member; a second line `#` if they have left",
    element_regex="<viewer>",
    value_regex=r"#[^\n]*(?:\n#)?",
    owner="session",
    lifetime=RETENTION,
    read=KeyAccess.ADMIN,
)
EVENT_COUNTRIES = Key(
    "<event>#Event#Countries",
    "zset",
    "Viewers by country.",
    contains="viewer",
    element_regex="<viewer>",
    score="country's number × 2^42 + the score in `Heartbeat`; the number of `ZZ` is 26 × 25 + 25 + 1",
    owner="event",
    lifetime=RETENTION,
    read=KeyAccess.ADMIN,
)
SESSION_COUNTRIES = Key(
    "<session>#Session#Countries",
    "zset",
    "The same for a session.",
    contains="viewer",
    element_regex="<viewer>",
    score="country's number × 2^42 + the score in `Heartbeat`",
    owner="session",
    lifetime=RETENTION,
    read=KeyAccess.ADMIN,
)
EVENT_GROUPS = Key(
    "<event>#Event#Groups",
    "zset",
    "Viewers by group.",
    contains="`<group's number>#<viewer>`",
    element_regex="<count>#<viewer>",
    score="group's number × 2^42 + the score in `Heartbeat`",
    owner="event",
    lifetime=RETENTION,
    read=KeyAccess.ADMIN,
)
SESSION_GROUPS = Key(
    "<session>#Session#Groups",
    "zset",
    "The same for a session.",
    contains="`<group's number>#<viewer>`",
    element_regex="<count>#<viewer>",
    score="group's number × 2^42 + the score in `Heartbeat`",
    owner="session",
    lifetime=RETENTION,
    read=KeyAccess.ADMIN,
)
EVENT_GROUP_NAMES = Key(
    "<event>#Event#GroupNames",
    "hash",
    "The groups seen at an event, numbered as they came.",
    contains="group → its number",
    element_regex="<viewer>",
    value_regex="<count>",
    owner="event",
    lifetime=RETENTION,
    read=KeyAccess.ADMIN,
)
SESSION_GROUP_NAMES = Key(
    "<session>#Session#GroupNames",
    "hash",
    "The same for a session.",
    contains="group → its number",
    element_regex="<viewer>",
    value_regex="<count>",
    owner="session",
    lifetime=RETENTION,
    read=KeyAccess.ADMIN,
)
EVENT_LEFT = Key(
    "<event>#Event#Left",
    "zset",
    "Viewers who said that they leave and have not come back.",
    contains="viewer",
    element_regex="<viewer>",
    score="when, Unix milliseconds: 245,001 more than in `Heartbeat`",
    owner="event",
    lifetime=RETENTION,
    read=KeyAccess.ADMIN,
)
SESSION_LEFT = Key(
    "<session>#Session#Left",
    "zset",
    "The same for a session.",
    contains="viewer",
    element_regex="<viewer>",
    score="when, Unix milliseconds: 245,001 more than in `Heartbeat`",
    owner="session",
    lifetime=RETENTION,
    read=KeyAccess.ADMIN,
)
EVENT_RECORDS = Key(
    "<event>#Event#Records",
    "hash",
    "Five-minute records that are not in SQL yet.",
    contains="end of the five minutes, Unix milliseconds → the statistics of that moment, JSON",
    element_regex="<ms>",
    value_regex=r"\{.*\}",
    owner="event",
    lifetime="until the worker has them in SQL",
    read=KeyAccess.ADMIN,
)
SESSION_RECORDS = Key(
    "<session>#Session#Records",
    "hash",
    "The same for a session.",
    contains="end of the five minutes, Unix milliseconds → the statistics of that moment, JSON",
    element_regex="<ms>",
    value_regex=r"\{.*\}",
    owner="session",
    lifetime="until the worker has them in SQL",
    read=KeyAccess.ADMIN,
)
EVENT_ROOMS = Key(
    "<event>#Event#Rooms",
    "hash",
    "The places with viewing sessions: a location, in a session or not.",
    contains="`<session>#<location>` or `<location>` → how far ended viewing sessions were collected: `<end> <viewer>`",
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
    lifetime=RETENTION + "; of a declared event, for ever",
    read=KeyAccess.ADMIN,
)
EVENT_FINISHED = Key(
    "<event>#Event#Finished",
    "zset",
    "Viewing sessions that are over and not in SQL yet.",
    contains="`<viewer>#<start>#<place>`",
    element_regex="<viewer>#<ms>#<place>",
    score="end, Unix milliseconds",
    owner="event",
    lifetime="until the worker has them in SQL",
    read=KeyAccess.ADMIN,
)
EVENT_FEED = Key(
    "<event>#Event#Feed",
    "stream",
    "The figures that watchers of the event are sent, second by second.",
    contains="field `figures`: JSON",
    owner="event",
    lifetime="2 minutes",
    ttl_seconds=120,
    read=KeyAccess.ADMIN,
)
EVENT_FEED_TURN = Key(
    "<event>#Event#FeedTurn",
    "string",
    "Some process computes the figures of this second.",
    owner="event",
    lifetime="0.9 s",
    ttl_seconds=1,
    read=KeyAccess.ADMIN,
)
LIVE_AWAKE = Key(
    "live:awake",
    "zset",
    "Events for which the worker has something to record.",
    contains="event",
    element_regex="<event>",
    score="when it woke, Unix milliseconds",
    lifetime="until the event is silent and recorded",
    read=KeyAccess.ADMIN,
)
LIVE_EVENTS = Key(
    "live:events",
    "zset",
    "Events with raw keys, as the worker found them or an admin declared them.",
    contains="event",
    element_regex="<event>",
    score="last known sign of life, Unix milliseconds",
    lifetime=RETENTION,
    read=KeyAccess.ADMIN,
)
LIVE_SALT = Key(
    "live:salt:<day>",
    "string",
    "What addresses of a day are hashed with. Once it is gone nobody can find the address to a hash.",
    contains="32 random bytes, hexadecimal",
    element_regex="[0-9a-f]{64}",
    owner="day",
    lifetime="2 days",
    ttl_seconds=172_800,
)

# No `#`, which separates the parts of names and members; no braces, which say where a key lives on a cluster.
ID = r"[^#{}\x00-\x1f\x7f-\x9f]{1,128}"

CATALOGUE = Catalogue.from_module(
    "live",
    globals(),
    {
        "event": ID,
        "session": ID,
        "location": ID,
        "viewer": r"[^#\x00-\x1f\x7f]+",
        "rest": "#[^#]*#(?:[^#]*#)+[A-Z]{2}",
        "place": f"(?:{ID}#)?{ID}",
        "day": r"\d{4}-\d{2}-\d{2}",
    },
)

EVENT_AUDIENCE = (
    EVENT_HEARTBEAT,
    EVENT_STATISTICS,
    EVENT_ATTENDED,
    EVENT_INFO,
    EVENT_VIEWERS,
    EVENT_COUNTRIES,
    EVENT_GROUPS,
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
    SESSION_COUNTRIES,
    SESSION_GROUPS,
    SESSION_GROUP_NAMES,
    SESSION_LEFT,
    SESSION_RECORDS,
)


def event_audience(event: str) -> list[str]:
    """The ten keys of an event's audience, in the order the functions take them."""
    return [key(event) for key in EVENT_AUDIENCE]


def session_audience(session: str) -> list[str]:
    """The same of a session."""
    return [key(session) for key in SESSION_AUDIENCE]


def event_keys(event: str) -> list[str]:
    """The thirteen keys of an event that do not depend on a place."""
    return [*event_audience(event), EVENT_ROOMS(event), EVENT_SESSIONS(event), EVENT_FINISHED(event)]


def viewing_keys(event: str, session: str, location: str) -> list[str]:
    """Where viewing sessions of a place begin and end; `session` is empty outside any."""
    if session:
        return [SESSION_VIEWING_START(event, session, location), SESSION_VIEWING_END(event, session, location)]
    return [VIEWING_START(event, location), VIEWING_END(event, location)]


def place(session: str, location: str) -> str:
    """A place as the extra keys write it."""
    return f"{session}#{location}" if session else location


def of_place(text: str) -> tuple[str, str]:
    """Its session (empty for none) and location."""
    session, hash_, location = text.partition("#")
    return (session, location) if hash_ else ("", session)
