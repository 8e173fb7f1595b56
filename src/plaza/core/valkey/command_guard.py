"""Rejects commands that must not run on a shared connection.

Some commands change the connection, so that other callers get wrong replies (`SELECT`, `MULTI`, `CLIENT REPLY`), some
have no ordinary reply (`SUBSCRIBE`), and some block all callers (`BLPOP`). One such command, for example from the HTTP
proxy, would show one user's data to another. They are rejected before they are queued.
"""

from __future__ import annotations

from collections.abc import Sequence

from plaza.core.valkey.calls import Arg, ReplyError

_WITHOUT_REPLY = "SUBSCRIBE PSUBSCRIBE SSUBSCRIBE UNSUBSCRIBE PUNSUBSCRIBE SUNSUBSCRIBE MONITOR SYNC PSYNC REPLCONF"
_CHANGE_CONNECTION = "ASKING AUTH DISCARD EXEC HELLO MULTI QUIT READONLY READWRITE RESET SELECT UNWATCH WATCH"
_BLOCK = "BLMOVE BLMPOP BLPOP BRPOP BRPOPLPUSH BZMPOP BZPOPMAX BZPOPMIN WAIT WAITAOF"
_FORBIDDEN = frozenset(f"{_WITHOUT_REPLY} {_CHANGE_CONNECTION} {_BLOCK}".split())
_FORBIDDEN_OPTIONS = {
    "CLIENT": frozenset(["CACHING", "REPLY", "TRACKING"]),
    "XREAD": frozenset(["BLOCK"]),
    "XREADGROUP": frozenset(["BLOCK"]),
}


# Names that were checked and are allowed with any arguments, as they were spelled. A lookup here costs a thirtieth of
# a call; `check_allowed` would cost a quarter.
ALLOWED_NAMES: set[Arg] = set()
_MAX_NAMES = 1024  # more spellings are checked each time


def check_allowed(command: Sequence[Arg]) -> None:
    """Raise `ReplyError` if a command must not run on a shared connection."""
    name = _text(command[0])
    options = _FORBIDDEN_OPTIONS.get(name)
    if name in _FORBIDDEN or (options and not options.isdisjoint(map(_text, command[1:8]))):
        raise ReplyError("ERR", f"ERR {name} is not allowed on a shared connection.")
    if not options and len(ALLOWED_NAMES) < _MAX_NAMES:
        ALLOWED_NAMES.add(command[0])


def check_all_allowed(commands: Sequence[Sequence[Arg]]) -> None:
    for command in commands:
        if command[0] not in ALLOWED_NAMES:
            check_allowed(command)


def _text(word: Arg) -> str:
    return (word.decode(errors="replace") if isinstance(word, bytes) else str(word)).upper()
