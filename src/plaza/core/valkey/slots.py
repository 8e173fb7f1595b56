"""Which part of a cluster a command belongs to: pure rules, no I/O.

A wrong guess is not wrong for long, since the node that is asked answers with the right place. So the table below holds
the commands whose first key is not their first argument, and nothing else.
"""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Sequence

from plaza.core.valkey.calls import Arg, ReplyError

SLOTS = 16_384

# Where the first key is, for commands that do not have it right after their name.
_NOWHERE, _COUNTED, _AFTER_STREAMS = 0, -1, -2
_PLACE: dict[str, int] = {
    **dict.fromkeys(("OBJECT", "BITOP", "XGROUP", "XINFO", "MEMORY", "LMPOP", "ZMPOP"), 2),
    **dict.fromkeys(("ZUNION", "ZINTER", "ZDIFF", "ZINTERCARD", "SINTERCARD"), 2),
    **dict.fromkeys(("BLMPOP", "BZMPOP"), 3),
    **dict.fromkeys(("FCALL", "FCALL_RO", "EVAL", "EVAL_RO", "EVALSHA", "EVALSHA_RO"), _COUNTED),
    **dict.fromkeys(("XREAD", "XREADGROUP"), _AFTER_STREAMS),
    # Any node can answer these.
    **dict.fromkeys(("ACL", "CLIENT", "CLUSTER", "COMMAND", "CONFIG", "DBSIZE", "ECHO", "FLUSHALL"), _NOWHERE),
    **dict.fromkeys(("FLUSHDB", "FUNCTION", "INFO", "LATENCY", "LOLWUT", "MODULE", "PING", "PUBLISH"), _NOWHERE),
    **dict.fromkeys(("PUBSUB", "RANDOMKEY", "SCAN", "SCRIPT", "SLOWLOG", "TIME", "WAIT"), _NOWHERE),
}


def key_slot(key: Arg) -> int:
    """The slot of a key."""
    name = key.encode() if isinstance(key, str) else key if isinstance(key, bytes) else str(key).encode()
    return crc_hqx(hash_tag(name), 0) % SLOTS


def hash_tag(name: bytes) -> bytes:
    """What a cluster hashes of a name: what is between the first braces, if there is something, else all of it."""
    start = name.find(b"{")
    if start >= 0:
        end = name.find(b"}", start + 1)
        if end > start + 1:
            return name[start + 1 : end]
    return name


def first_key(command: Sequence[Arg]) -> Arg | None:
    """The first key of a command, or None if it has none."""
    name = command[0]
    place = _PLACE.get(name.upper() if isinstance(name, str) else _text(name).upper(), 1)
    if place > 0:
        return command[place] if len(command) > place else None
    if place == _COUNTED:
        return command[3] if len(command) > 3 and _text(command[2]) != "0" else None
    if place == _AFTER_STREAMS:
        words = [_text(part).upper() for part in command]
        place = words.index("STREAMS") + 1 if "STREAMS" in words else len(words)
        return command[place] if len(command) > place else None
    return None


def _text(word: Arg) -> str:
    return word.decode(errors="replace") if isinstance(word, bytes) else str(word)


def common_slot(commands: Sequence[Sequence[Arg]]) -> int | None:
    """The slot that all these commands belong to; refused if there are several, None if none has a key."""
    slots = {key_slot(key) for key in map(first_key, commands) if key is not None}
    if len(slots) > 1:
        raise ReplyError("CROSSSLOT", "CROSSSLOT A transaction on a cluster has all its keys in one slot.")
    return next(iter(slots), None)
