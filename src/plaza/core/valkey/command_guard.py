"""What nobody may send on a connection that all share.

Some commands change the connection itself, so that others get answers to questions they did not ask (`SELECT`,
`MULTI`, `CLIENT REPLY`), some are never answered in the ordinary way (`SUBSCRIBE`), and some make everybody behind them
wait (`BLPOP`). One that slipped through, from the HTTP proxy say, would show one user's data to another. They are
refused here, before anything is queued.
"""

from __future__ import annotations

from collections.abc import Sequence

from plaza.core.valkey.calls import Arg, ReplyError

_UNANSWERED = "SUBSCRIBE PSUBSCRIBE SSUBSCRIBE UNSUBSCRIBE PUNSUBSCRIBE SUNSUBSCRIBE MONITOR SYNC PSYNC REPLCONF"
_CHANGING = "ASKING AUTH DISCARD EXEC HELLO MULTI QUIT READONLY READWRITE RESET SELECT UNWATCH WATCH"
_WAITING = "BLMOVE BLMPOP BLPOP BRPOP BRPOPLPUSH BZMPOP BZPOPMAX BZPOPMIN WAIT WAITAOF"
_NEVER = frozenset(f"{_UNANSWERED} {_CHANGING} {_WAITING}".split())
_SOMETIMES = {
    "CLIENT": frozenset(["CACHING", "REPLY", "TRACKING"]),
    "XREAD": frozenset(["BLOCK"]),
    "XREADGROUP": frozenset(["BLOCK"]),
}


# Names that were looked at and are harmless whatever follows, as they were spelled. Looking here first costs a
# thirtieth of a call; asking `check` every time would cost a quarter.
ALLOWED_NAMES: set[Arg] = set()
_MOST = 1024  # spellings; whoever sends more is looked at each time


def check_allowed(command: Sequence[Arg]) -> None:
    """Refuse a command that would harm the others on a shared connection."""
    name = _text(command[0])
    words = _SOMETIMES.get(name)
    if name in _NEVER or (words and not words.isdisjoint(map(_text, command[1:8]))):
        raise ReplyError("ERR", f"ERR {name} is not possible on a shared connection.")
    if not words and len(ALLOWED_NAMES) < _MOST:
        ALLOWED_NAMES.add(command[0])


def check_all_allowed(commands: Sequence[Sequence[Arg]]) -> None:
    for command in commands:
        if command[0] not in ALLOWED_NAMES:
            check_allowed(command)


def _text(word: Arg) -> str:
    return (word.decode(errors="replace") if isinstance(word, bytes) else str(word)).upper()
