"""The invariants of sessions: a session follows `login:`, and the index of a user's sessions follows the session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plaza.core.invariants import Command, Entry, Invariant
from plaza.sessions.keys import LOGIN_TOKENS, RECENT_TOKENS, SESSION_STATE, USER_SESSION_TOKENS

REPAIRS = {"session": SESSION_STATE, "user_session": SESSION_STATE}


def _read_entries(entry: Entry) -> Sequence[Command]:
    token, user = entry.parts[0], entry.value.get("user", "")
    reads: list[Command] = [("ZSCORE", RECENT_TOKENS(), token), ("HGET", LOGIN_TOKENS(), token)]
    return [*reads, ("ZSCORE", USER_SESSION_TOKENS(user), token)] if user else reads


def _check_session(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    fields = entry.value
    is_live, user = "moved" not in fields, fields.get("user", "")
    if is_live and replies[1] != (user or None):
        return f"has the user {user or '(guest)'}, but `{LOGIN_TOKENS()}` has {replies[1]}"
    if is_live and replies[0] is None:
        return f"is not in `{RECENT_TOKENS()}`"
    if len(replies) > 2 and (replies[2] is not None) != is_live:
        return f"is not among the sessions of {user}" if is_live else f"is still among the sessions of {user}"
    return None


def _read_session(entry: Entry) -> Sequence[Command]:
    return (("HMGET", SESSION_STATE(entry.ids[0]), "user", "moved"),)


def _check_user_session(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    user, moved = replies[0]
    agrees = user == entry.parts[0] and moved is None
    return None if agrees else f"has {entry.member}, which is not a session of {entry.parts[0]}"


# Entries of `login:` and `recent:` without a session are no finding: another service wrote them by the document.
INVARIANTS = (
    Invariant("session", SESSION_STATE, _read_entries, _check_session, per_key=True),
    Invariant("session", USER_SESSION_TOKENS, _read_session, _check_user_session),
)
