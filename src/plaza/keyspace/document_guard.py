"""Lua that protects documented keys: writes to them are left out, everything else runs.

It is put before the libraries of one process (`Library.guard`), so no command of that process can change a documented
key, whatever it repairs. Other processes load their libraries without it, and pay nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from plaza.core.keyspace import Catalogue, Key

_PART: Final = re.compile(r"<\w+>")
_MAGIC: Final = re.compile(r"([^\w])")
_LITERAL: Final = re.compile(r"[\w:#-]+")  # the shape of a part that is always the same
_CHARACTERS: Final = re.compile(r"(\[[^\]\\%]+\])(\{[\d,]+\}|\+)?")  # `[1-5]`, `[0-9a-f]{16}`

_ANY_HEAD: Final = "*"  # of families whose names begin with a part

# Commands whose first argument is written only if the command is not among these. `ALL` write or delete every key that
# they name. A command that is skipped replies 0, as one that changes nothing.
_GUARD: Final = """
-- Valkey has another table `redis` while a function runs than while its library loads.
local function unguarded_call(...) return redis.call(...) end
local function unguarded_pcall(...) return redis.pcall(...) end
local function sha1hex(text) return redis.sha1hex(text) end
local function error_reply(text) return redis.error_reply(text) end
local redis = {register_function = redis.register_function, sha1hex = sha1hex, error_reply = error_reply}
do
  local READS = {}
  for name in ('EXISTS GET HEXISTS HGET HGETALL HKEYS HLEN HMGET HSCAN HSTRLEN HVALS LINDEX LLEN LPOS LRANGE MGET ' ..
    'PEXPIRETIME PTTL SCARD SINTER SISMEMBER SMEMBERS SMISMEMBER SRANDMEMBER SSCAN STRLEN TIME TTL TYPE XINFO XLEN ' ..
    'XPENDING XRANGE XREVRANGE ZCARD ZCOUNT ZDIFF ZINTERCARD ZMSCORE ZRANGE ZRANGEBYSCORE ZRANK ZREVRANGE ' ..
    'ZREVRANGEBYSCORE ZREVRANK ZSCAN ZSCORE'):gmatch('%S+') do READS[name] = true end
  local ALL = {DEL = true, UNLINK = true, RENAME = true, COPY = true}
  -- By the text before the first colon, `*` for others. Those with most literal characters are first:
  -- `user:<username>:liked` is not a `user:<username>`.
  local FAMILIES = {
FAMILY_ROWS
  }
  local function is_documented(name)
    for _, family in ipairs(FAMILIES[name:match('^[^:]*')] or FAMILIES['*']) do
      if name:find(family[1]) then return family[2] end
    end
    return false
  end
  local function is_refused(command, ...)
    if READS[command] or READS[command:upper()] then return false end
    local keys = {...}
    for number = 1, ALL[command:upper()] and #keys or 1 do
      if type(keys[number]) == 'string' and is_documented(keys[number]) then return true end
    end
    return false
  end
  redis.call = function(command, ...)
    if is_refused(command, ...) then return 0 end
    return unguarded_call(command, ...)
  end
  redis.pcall = function(command, ...)
    if is_refused(command, ...) then return 0 end
    return unguarded_pcall(command, ...)
  end
end
"""


def document_guard(catalogues: Sequence[Catalogue]) -> str:
    """Return the Lua that protects the documented keys of these catalogues."""
    families = [_Family.for_key(key, catalogue.shapes) for catalogue in catalogues for _, key in catalogue]
    families.sort(key=lambda family: -family.literal_size)
    lines = []
    for head in sorted({family.head for family in families}):
        rows = (family.row for family in families if family.head in (head, _ANY_HEAD))
        lines.append(f'    ["{head}"] = {{{", ".join(rows)}}},')
    return _GUARD.replace("FAMILY_ROWS", "\n".join(lines))


class _Family(NamedTuple):
    """What the guard knows of the names of a family."""

    literal_size: int
    head: str  # the text before the first colon, if it is the same in all names
    row: str  # in Lua: a pattern, and whether it is documented

    @classmethod
    def for_key(cls, key: Key, shapes: Mapping[str, str]) -> _Family:
        size, pattern = 0, ""
        for text in re.split(r"(<\w+>)", key.pattern):
            if _PART.fullmatch(text):
                shape = shapes[text[1:-1]]
                size += len(shape) if _LITERAL.fullmatch(shape) else 0
                pattern += f"{{?{_lua_shape(shape)}}}?"  # in braces on a cluster
            else:
                size += len(text)
                pattern += _escaped(text)
        head = key.pattern.partition(":")[0]
        row = f'{{"^{pattern}$", {"true" if key.document else "false"}}}'
        return cls(size, _ANY_HEAD if "<" in head else head, row)


def _lua_shape(shape: str) -> str:
    """Return the Lua pattern of a part, as exactly as Lua can: a text, a set of characters, or anything."""
    if _LITERAL.fullmatch(shape):
        return _escaped(shape)
    found = _CHARACTERS.fullmatch(shape)
    return ".+" if found is None else found[1] + ("+" if found[2] else "")


def _escaped(text: str) -> str:
    return _MAGIC.sub(r"%\1", text)
