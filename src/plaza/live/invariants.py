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
from plaza.live.model import AWAY_MS, SCORE_SHIFT
from plaza.live.other_services import to_ms

REPAIRS = {
    "event_viewer": k.EVENT_VIEWERS,
    "session_viewer": k.SESSION_VIEWERS,
    "event_counts": k.EVENT_VIEWERS,
    "session_counts": k.SESSION_VIEWERS,
    "room": k.EVENT_ROOMS,
    "session_room": k.EVENT_ROOMS,
    "awake": k.EVENT_INFO,
    "joined": k.EVENT_SESSIONS,
}


def _audience(kind: str) -> list[Invariant]:
    """Return the invariants of an event's audience or a session's."""
    audience = k.EVENT_AUDIENCE if kind == "event" else k.SESSION_AUDIENCE
    repair = f"{kind}_viewer <{kind}> <viewer>"
    return [*_entries_are_right(kind, audience, repair), *_members_have_entries(kind, audience, repair)]


def _entries_are_right(kind: str, audience: Sequence[Key], repair: str) -> list[Invariant]:
    """A viewer with an entry has a heartbeat, and the entry and the counts say what the documented keys say."""
    heartbeat, _, _, _, viewers, counts, *_ = audience

    def reads_viewer(entry: Entry) -> Sequence[Command]:
        id, viewer = entry.parts[0], entry.member
        return (
            ("ZSCORE", heartbeat(id), viewer),
            ("QUERY", "live_check_viewer", 1, entry.name, kind, id, viewer),
        )

    def check_viewer(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        if replies[0] is None:
            return f"has {entry.member}, who has no heartbeat"
        return f"has {entry.member}, who {replies[1]}" if replies[1] else None

    def reads_count(entry: Entry) -> Sequence[Command]:
        return (("QUERY", "live_check_count", 1, viewers(entry.parts[0]), kind, entry.parts[0], entry.member),)

    def check_count(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        if replies[0] == -1 or str(entry.value) == str(replies[0]):
            return None
        return f"has {entry.value} viewers for {entry.member}, and {replies[0]} are counted"

    return [
        Invariant("viewer", viewers, reads_viewer, check_viewer, repair),
        Invariant("count", counts, reads_count, check_count, f"{kind}_counts <{kind}>"),
    ]


def _members_have_entries(kind: str, audience: Sequence[Key], repair: str) -> list[Invariant]:
    """A viewer with a heartbeat has an entry, and one who left has the heartbeat of a viewer who left."""
    heartbeat, _, _, _, viewers, _, _, left, _ = audience

    def reads_entry(entry: Entry) -> Sequence[Command]:
        return (("HGET", viewers(entry.parts[0]), entry.ids[-1]),)

    def check_entry(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        if replies[0] is not None or to_ms(entry.value) is None:
            return None
        return f"has {entry.member}, who is not in `{viewers(entry.parts[0])}`"

    def reads_heartbeat(entry: Entry) -> Sequence[Command]:
        return (("ZSCORE", heartbeat(entry.parts[0]), entry.member),)

    def check_left(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        # A score of 2^42 or more: the viewer left one of several places, which lowers no heartbeat.
        if replies[0] is not None and (entry.value >= SCORE_SHIFT or entry.value == replies[0] + AWAY_MS):
            return None
        return f"has {entry.member} at {entry.value:.0f}, and the heartbeat is at {replies[0]}"

    return [
        Invariant("viewer", heartbeat, reads_entry, check_entry, repair),
        Invariant("left", left, reads_heartbeat, check_left, repair),
    ]


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
