"""What is always true of an audience, beyond the lines in `keys.py`: all its keys speak of the same viewers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from plaza.core.invariants import Command, Entry, Invariant, Invariants
from plaza.core.keyspace import Key
from plaza.live import keys as k

# As `audience.lua` has it: by how much the heartbeat of a viewer who left is lowered.
AWAY_MS: Final = 245_001

# And two numbers in one score: n × SHIFT + time.
SHIFT: Final = 2**42

MENDS = {
    "event_viewer": k.EVENT_VIEWERS,
    "session_viewer": k.SESSION_VIEWERS,
    "event_statistic": k.EVENT_VIEWERS,
    "session_statistic": k.SESSION_VIEWERS,
    "viewing": k.VIEWING_START,
    "session_viewing": k.SESSION_VIEWING_START,
    "room": k.EVENT_ROOMS,
    "session_room": k.EVENT_ROOMS,
    "awake": k.EVENT_INFO,
    "joined": k.EVENT_SESSIONS,
}


def _country_number(code: str) -> int:
    return (ord(code[0]) - 65) * 26 + ord(code[1]) - 65 + 1


def _audience(kind: str) -> list[Invariant]:
    """The rules of an event's audience, or a session's."""
    audience = k.EVENT_AUDIENCE if kind == "event" else k.SESSION_AUDIENCE
    return [*_noted(kind, audience), *_counted(kind, audience)]


def _mend(kind: str) -> str:
    return f"{kind}_viewer <{kind}> <viewer>"


def _noted(kind: str, audience: Sequence[Key]) -> list[Invariant]:
    """Of whom there is a note of the last beat, all else that it says is counted."""
    heartbeat, statistics, attended, _, viewers, countries, *_ = audience

    def asks_counted(entry: Entry) -> Sequence[Command]:
        id, viewer = entry.parts[0], entry.member
        return (
            ("ZSCORE", heartbeat(id), viewer),
            ("ZSCORE", statistics(id), viewer + entry.value.partition("\n")[0]),
            ("ZSCORE", countries(id), viewer),
            ("SISMEMBER", attended(id), viewer),
        )

    def counted(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        beat, statistic, country, there = replies
        code = entry.value.partition("\n")[0][-2:]
        if beat is None:
            return f"has {entry.member}, who has no heartbeat"
        if statistic != beat:
            return f"has {entry.member}, who is otherwise in the statistics"
        if country != _country_number(code) * SHIFT + beat:
            return f"has {entry.member}, who is not counted for {code}"
        return None if there else f"has {entry.member}, who is not among those who attended"

    def asks_grouped(entry: Entry) -> Sequence[Command]:
        if not any(entry.value.partition("\n")[0].split("#")[2:-1]):
            return ()
        return (("ASK", "live_check_groups", 1, entry.name, kind, entry.parts[0], entry.member),)

    def grouped(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        return f"has {entry.member}, who is not counted for the group {replies[0]}" if any(replies) else None

    return [
        Invariant("viewer", viewers, asks_counted, counted, _mend(kind)),
        Invariant("group", viewers, asks_grouped, grouped, _mend(kind)),
    ]


def _counted(kind: str, audience: Sequence[Key]) -> list[Invariant]:
    """Who is counted anywhere has a note of the last beat, which says the same."""
    heartbeat, statistics, attended, _, viewers, countries, groups, names, left, _ = audience
    repair = _mend(kind)

    def asks_known(entry: Entry) -> Sequence[Command]:
        return (("HGET", viewers(entry.parts[0]), entry.ids[-1]),)

    def known(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        return f"has {entry.member}, of whom nothing else is known" if replies[0] is None else None

    def asks_statistic(entry: Entry) -> Sequence[Command]:
        return (("HGET", viewers(entry.parts[0]), entry.ids[0]),)

    def statistic(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        rest = (replies[0] or "").partition("\n")[0]
        return None if rest == entry.ids[1] else f"has {entry.member}, and that viewer's last beat said {rest!r}"

    def asks_group(entry: Entry) -> Sequence[Command]:
        return (("HGET", viewers(entry.parts[0]), entry.ids[1]), ("HGETALL", names(entry.parts[0])))

    def group(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        note, numbers = replies
        rest = (note or "").partition("\n")[0]
        name = next((name for name, number in numbers.items() if number == entry.ids[0]), None)
        if name is not None and name in rest.split("#")[2:-1]:
            return None
        return f"has {entry.ids[1]} in group {name or entry.ids[0]}, and the last beat said {rest!r}"

    def asks_left(entry: Entry) -> Sequence[Command]:
        return (("ZSCORE", heartbeat(entry.parts[0]), entry.member),)

    def has_left(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        if replies[0] is not None and entry.value == replies[0] + AWAY_MS:
            return None
        return f"has {entry.member} at {entry.value:.0f}, and the heartbeat is at {replies[0]}"

    return [
        *(Invariant("viewer", key, asks_known, known, repair) for key in (heartbeat, attended, countries)),
        Invariant("viewer", statistics, asks_statistic, statistic, f"{kind}_statistic <{kind}> <viewer> <rest>"),
        Invariant("group", groups, asks_group, group, repair),
        Invariant("left", left, asks_left, has_left, repair),
    ]


def _viewing(start: Key, end: Key, prefix: str) -> list[Invariant]:
    """Viewing sessions of a place: whoever began has an end, and the place is known."""
    names = " ".join(f"<{part}>" for part in start.parts)

    def asks_end(entry: Entry) -> Sequence[Command]:
        return (("ZSCORE", end(*entry.parts), entry.member),)

    def ends(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        if replies[0] is not None and replies[0] >= entry.value:
            return None
        return f"has {entry.member} from {entry.value:.0f}, until {replies[0]}"

    def asks_start(entry: Entry) -> Sequence[Command]:
        return (("EXISTS", start(*entry.parts)), ("ZSCORE", start(*entry.parts), entry.member))

    def starts(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        return f"has {entry.member}, who never began" if replies[1] is None else None

    def asks_room(entry: Entry) -> Sequence[Command]:
        return (("HEXISTS", k.EVENT_ROOMS(entry.parts[0]), "#".join(entry.parts[1:])),)

    def room(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        return None if replies[0] else "is of a place that the event does not know"

    repair = f"{prefix}viewing {names} <viewer>"
    return [
        Invariant("viewing", start, asks_end, ends, repair),
        Invariant("viewing", end, asks_start, starts, repair),
        Invariant("room", start, asks_room, room, f"{prefix}room {names}", per_key=True),
    ]


def _asks_awake(entry: Entry) -> Sequence[Command]:
    return (("ZSCORE", k.LIVE_AWAKE(), entry.parts[0]),) if entry.value.get("awake") else ()


def _awake(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    return f"is awake, and not in `{k.LIVE_AWAKE()}`" if replies and replies[0] is None else None


def _asks_joined(entry: Entry) -> Sequence[Command]:
    event = entry.value.get("event")
    return (("SISMEMBER", k.EVENT_SESSIONS(event), entry.parts[0]),) if event else ()


def _joined(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    return f"is not among the sessions of {entry.value['event']}" if replies and not replies[0] else None


INVARIANTS = Invariants(
    [
        *_audience("event"),
        *_audience("session"),
        *_viewing(k.VIEWING_START, k.VIEWING_END, ""),
        *_viewing(k.SESSION_VIEWING_START, k.SESSION_VIEWING_END, "session_"),
        Invariant("awake", k.EVENT_INFO, _asks_awake, _awake, "awake <event>", per_key=True),
        Invariant("joined", k.SESSION_INFO, _asks_joined, _joined, "joined <event> <session>", per_key=True),
    ],
    MENDS,
)
