"""Finds the slot of keys and the first key of commands, without I/O.

A wrong slot is corrected by the node, which replies with a redirection. So the table below has only the commands whose
first key is not their first argument.
"""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Sequence

from plaza.core.valkey.calls import Arg, ReplyError

SLOTS = 16_384

# The position of the first key, for commands that do not have it right after their name.
_NO_KEY, _COUNTED, _AFTER_STREAMS = 0, -1, -2
_KEY_POSITION: dict[str, int] = {
    **dict.fromkeys(("OBJECT", "BITOP", "XGROUP", "XINFO", "MEMORY", "LMPOP", "ZMPOP"), 2),
    **dict.fromkeys(("ZUNION", "ZINTER", "ZDIFF", "ZINTERCARD", "SINTERCARD"), 2),
    **dict.fromkeys(("BLMPOP", "BZMPOP"), 3),
    **dict.fromkeys(("FCALL", "FCALL_RO", "EVAL", "EVAL_RO", "EVALSHA", "EVALSHA_RO"), _COUNTED),
    **dict.fromkeys(("XREAD", "XREADGROUP"), _AFTER_STREAMS),
    # Any node can answer these.
    **dict.fromkeys(("ACL", "CLIENT", "CLUSTER", "COMMAND", "CONFIG", "DBSIZE", "ECHO", "FLUSHALL"), _NO_KEY),
    **dict.fromkeys(("FLUSHDB", "FUNCTION", "INFO", "LATENCY", "LOLWUT", "MODULE", "PING", "PUBLISH"), _NO_KEY),
    **dict.fromkeys(("PUBSUB", "RANDOMKEY", "SCAN", "SCRIPT", "SLOWLOG", "TIME", "WAIT"), _NO_KEY),
}


def key_slot(key: Arg) -> int:
    """Return the slot of a key."""
    if isinstance(key, bytes):
        return crc_hqx(hash_tag(key), 0) % SLOTS
    # As `hash_tag`: most keys are texts, and this is called for every command on a cluster.
    name = str(key)
    start = name.find("{")
    if start >= 0:
        end = name.find("}", start + 1)
        if end > start + 1:
            name = name[start + 1 : end]
    return crc_hqx(name.encode(), 0) % SLOTS


def hash_tag(name: bytes) -> bytes:
    """Return the part of a name that a cluster hashes: the text in its first braces, if any, else all of it."""
    start = name.find(b"{")
    if start >= 0:
        end = name.find(b"}", start + 1)
        if end > start + 1:
            return name[start + 1 : end]
    return name


def first_key(command: Sequence[Arg]) -> Arg | None:
    """Return the first key of a command, or None."""
    name = command[0]
    position = _KEY_POSITION.get(name.upper() if isinstance(name, str) else _text(name).upper(), 1)
    if position > 0:
        return command[position] if len(command) > position else None
    if position == _COUNTED:
        return command[3] if len(command) > 3 and _text(command[2]) != "0" else None
    if position == _AFTER_STREAMS:
        words = [_text(part).upper() for part in command]
        position = words.index("STREAMS") + 1 if "STREAMS" in words else len(words)
        return command[position] if len(command) > position else None
    return None


def _text(word: Arg) -> str:
    return word.decode(errors="replace") if isinstance(word, bytes) else str(word)


def common_slot(commands: Sequence[Sequence[Arg]]) -> int | None:
    """Return the slot of all these commands, or None if none has a key. Raises `ReplyError` if there are several."""
    slots = {key_slot(key) for key in map(first_key, commands) if key is not None}
    if len(slots) > 1:
        raise ReplyError("CROSSSLOT", "CROSSSLOT On a cluster all keys of a transaction must be in one slot.")
    return next(iter(slots), None)
