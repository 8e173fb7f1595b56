"""The invariants of sessions: `login:`, `recent:` and a user's sessions agree with the session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plaza.core.invariants import Command, Entry, Invariant
from plaza.sessions.keys import LOGIN_TOKENS, RECENT_TOKENS, SESSION_STATE, USER_SESSION_TOKENS

REPAIRS = {"session": SESSION_STATE, "user_session": SESSION_STATE}


def _read_indexes(entry: Entry) -> Sequence[Command]:
    token, user = entry.parts[0], entry.value.get("user", "")
    reads: list[Command] = [("ZSCORE", RECENT_TOKENS(), token), ("HGET", LOGIN_TOKENS(), token)]
    return [*reads, ("ZSCORE", USER_SESSION_TOKENS(user), token)] if user else reads


def _check_session(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    fields = entry.value
    is_live = "moved" not in fields
    user = fields["user"] if is_live else ""
    if replies[0] != (float(fields["seen"]) if is_live else None):
        return f"was seen at {fields['seen']}, but `{RECENT_TOKENS()}` has {replies[0]}"
    if replies[1] != (user or None):
        return f"has the user {user or '(guest)'}, but `{LOGIN_TOKENS()}` has {replies[1]}"
    if len(replies) > 2 and (replies[2] is not None) != is_live:
        return f"is not among the sessions of {fields['user']}"
    return None


def _read_session(entry: Entry) -> Sequence[Command]:
    return (("HMGET", SESSION_STATE(entry.ids[0]), "user", "seen", "moved"),)


def _check_login(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    user, _, moved = replies[0]
    if user == entry.value and moved is None:
        return None
    return f"has {entry.value} for {entry.member}, but its session has {user or '(guest)'}"


def _check_recent(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    _, seen, moved = replies[0]
    agrees = seen is not None and moved is None and float(seen) == entry.value
    return None if agrees else f"has {entry.member} at {entry.value}, but its session was seen at {seen}"


def _check_user_session(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    user, _, moved = replies[0]
    agrees = user == entry.parts[0] and moved is None
    return None if agrees else f"has {entry.member}, which is not a session of {entry.parts[0]}"


INVARIANTS = (
    Invariant("session", SESSION_STATE, _read_indexes, _check_session, per_key=True),
    Invariant("session", LOGIN_TOKENS, _read_session, _check_login),
    Invariant("session", RECENT_TOKENS, _read_session, _check_recent),
    Invariant("session", USER_SESSION_TOKENS, _read_session, _check_user_session),
)
