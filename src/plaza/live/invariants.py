"""The invariants of an audience beyond those in `keys.py`: its additional keys follow the documented ones.

Heartbeats, statistics and viewing sessions are documented keys, which other services write too. They are source data:
no repair changes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plaza.core.invariants import Command, Entry, Invariant, Invariants
from plaza.core.keyspace import Key
from plaza.live import keys as k
from plaza.live.model import AWAY_MS, SCORE_SHIFT, UNKNOWN_COUNTRY
from plaza.live.other_services import to_ms

REPAIRS = {
    "event_viewer": k.EVENT_VIEWERS,
    "session_viewer": k.SESSION_VIEWERS,
    "event_statistics": k.EVENT_VIEWERS,
    "session_statistics": k.SESSION_VIEWERS,
    "room": k.EVENT_ROOMS,
    "session_room": k.EVENT_ROOMS,
    "awake": k.EVENT_INFO,
    "joined": k.EVENT_SESSIONS,
}


def _country_in(details: str) -> str:
    code = details.rpartition("#")[2].upper()
    return code if len(code) == 2 and code.isascii() and code.isalpha() else UNKNOWN_COUNTRY


def _country_number(code: str) -> int:
    return (ord(code[0]) - 65) * 26 + ord(code[1]) - 65 + 1


def _details_of(entry: str | None) -> str:
    """Return the details in a viewer's entry: its first line."""
    return (entry or "").partition("\n")[0]


def _groups_in(details: str) -> list[str]:
    return [group for group in details.split("#")[2:-1] if group]


def _audience(kind: str) -> list[Invariant]:
    """Return the invariants of an event's audience or a session's."""
    audience = k.EVENT_AUDIENCE if kind == "event" else k.SESSION_AUDIENCE
    return [*_entries_are_counted(kind, audience), *_members_have_entries(kind, audience)]


def _repair(kind: str) -> str:
    return f"{kind}_viewer <{kind}> <viewer>"


def _entries_are_counted(kind: str, audience: Sequence[Key]) -> list[Invariant]:
    """A viewer with an entry has a heartbeat, and is counted for the country and the groups in the entry."""
    heartbeat, _, _, _, viewers, countries, *_ = audience

    def reads_country(entry: Entry) -> Sequence[Command]:
        id, viewer = entry.parts[0], entry.member
        return (("ZSCORE", heartbeat(id), viewer), ("ZSCORE", countries(id), viewer))

    def check_country(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        score, counted = replies
        code = _country_in(_details_of(entry.value))
        if score is None:
            return f"has {entry.member}, who has no heartbeat"
        beat = to_ms(score)
        if beat is not None and counted != _country_number(code) * SCORE_SHIFT + beat:
            return f"has {entry.member}, who is not counted for {code}"
        return None

    def reads_groups(entry: Entry) -> Sequence[Command]:
        if not _groups_in(_details_of(entry.value)):
            return ()
        return (("QUERY", "live_check_groups", 1, entry.name, kind, entry.parts[0], entry.member),)

    def check_groups(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        return f"has {entry.member}, who is not counted for the group {replies[0]}" if any(replies) else None

    return [
        Invariant("viewer", viewers, reads_country, check_country, _repair(kind)),
        Invariant("group", viewers, reads_groups, check_groups, _repair(kind)),
    ]


def _members_have_entries(kind: str, audience: Sequence[Key]) -> list[Invariant]:
    """A viewer with a heartbeat, or who is counted anywhere, has an entry; it has the latest statistics member."""
    heartbeat, statistics, _, _, viewers, countries, groups, names, left, _ = audience
    repair = _repair(kind)

    def reads_entry(entry: Entry) -> Sequence[Command]:
        return (("HGET", viewers(entry.parts[0]), entry.ids[-1]),)

    def check_entry(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        if replies[0] is not None or to_ms(entry.value) is None:
            return None
        return f"has {entry.member}, who is not in `{viewers(entry.parts[0])}`"

    def reads_statistics(entry: Entry) -> Sequence[Command]:
        id = entry.parts[0]
        return (("QUERY", "live_check_statistics", 1, viewers(id), kind, id, *entry.ids),)

    def check_statistics(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        return f"has {entry.member}, but that viewer is counted as {replies[0]!r}" if replies[0] else None

    def reads_group(entry: Entry) -> Sequence[Command]:
        return (("HGET", viewers(entry.parts[0]), entry.ids[1]), ("HGETALL", names(entry.parts[0])))

    def check_group(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        viewer, numbers = replies
        details = _details_of(viewer)
        name = next((name for name, number in numbers.items() if number == entry.ids[0]), None)
        if name is not None and name in _groups_in(details):
            return None
        return f"has {entry.ids[1]} in group {name or entry.ids[0]}, but that viewer's details are {details!r}"

    def reads_heartbeat(entry: Entry) -> Sequence[Command]:
        return (("ZSCORE", heartbeat(entry.parts[0]), entry.member),)

    def check_left(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        # A score of 2^42 or more: the viewer left one of several places, which lowers no heartbeat.
        if replies[0] is not None and (entry.value >= SCORE_SHIFT or entry.value == replies[0] + AWAY_MS):
            return None
        return f"has {entry.member} at {entry.value:.0f}, and the heartbeat is at {replies[0]}"

    return [
        Invariant("viewer", heartbeat, reads_entry, check_entry, repair),
        Invariant("viewer", countries, reads_entry, _check_counted, repair),
        Invariant(
            "viewer", statistics, reads_statistics, check_statistics, f"{kind}_statistics <{kind}> <viewer> <details>"
        ),
        Invariant("group", groups, reads_group, check_group, repair),
        Invariant("left", left, reads_heartbeat, check_left, repair),
    ]


def _check_counted(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    return f"has {entry.member}, who has no entry" if replies[0] is None else None


def _place_is_known(start: Key, prefix: str) -> Invariant:
    """The place of viewing sessions is in the event's list of places."""

    def reads(entry: Entry) -> Sequence[Command]:
        return (("HEXISTS", k.EVENT_ROOMS(entry.parts[0]), "#".join(entry.parts[1:])),)

    def check(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        return None if replies[0] else "is of a place that is not in the event's list"

    parts = " ".join(f"<{part}>" for part in start.parts)
    return Invariant("room", start, reads, check, f"{prefix}room {parts}", per_key=True)


def _reads_awake(entry: Entry) -> Sequence[Command]:
    return (("ZSCORE", k.LIVE_AWAKE(), entry.parts[0]),) if entry.value.get("awake") else ()


def _check_awake(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    return f"is awake, but not in `{k.LIVE_AWAKE()}`" if replies and replies[0] is None else None


def _reads_joined(entry: Entry) -> Sequence[Command]:
    event = entry.value.get("event")
    return (("SISMEMBER", k.EVENT_SESSIONS(event), entry.parts[0]),) if event else ()


def _check_joined(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    return f"is not among the sessions of {entry.value['event']}" if replies and not replies[0] else None


INVARIANTS = Invariants(
    [
        *_audience("event"),
        *_audience("session"),
        _place_is_known(k.VIEWING_START, ""),
        _place_is_known(k.SESSION_VIEWING_START, "session_"),
        Invariant("awake", k.EVENT_INFO, _reads_awake, _check_awake, "awake <event>", per_key=True),
        Invariant("joined", k.SESSION_INFO, _reads_joined, _check_joined, "joined <event> <session>", per_key=True),
    ],
    REPAIRS,
)
