"""Lua that protects documented keys: writes to them are left out, everything else runs.

It is put before the libraries of one process (`Library.guard`), so no command of that process can change a documented
key, whatever it repairs. Other processes load their libraries without it, and pay nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from plaza.core.keyspace import Catalogue, Key

_PART: Final = re.compile(r"<\w+>")
_MAGIC: Final = re.compile(r"([^\w])")
_LITERAL: Final = re.compile(r"[\w:#-]+")  # the shape of a part that is always the same
_CHARACTERS: Final = re.compile(r"(\[[^\]\\%]+\])(\{[\d,]+\}|\+)?")  # `[1-5]`, `[0-9a-f]{16}`

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
  -- Most literal characters first: `user:<username>:liked` is not a `user:<username>`.
  local FAMILIES = {
FAMILY_ROWS
  }
  local function is_documented(name)
    for _, family in ipairs(FAMILIES) do
      if name:find(family[1]) then return family[2] end
    end
    return false
  end
  local function is_refused(command, ...)
    if READS[command:upper()] then return false end
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
    rows = [_family_row(key, catalogue.shapes) for catalogue in catalogues for _, key in catalogue]
    rows.sort(key=lambda row: -row[0])
    lines = [f'    {{"{pattern}", {"true" if is_documented else "false"}}},' for _, pattern, is_documented in rows]
    return _GUARD.replace("FAMILY_ROWS", "\n".join(lines))


def _family_row(key: Key, shapes: Mapping[str, str]) -> tuple[int, str, bool]:
    """Return the number of literal characters of a family's names, their Lua pattern, and whether it is documented."""
    size, pattern = 0, ""
    for text in re.split(r"(<\w+>)", key.pattern):
        if _PART.fullmatch(text):
            shape = shapes[text[1:-1]]
            size += len(shape) if _LITERAL.fullmatch(shape) else 0
            pattern += f"{{?{_lua_shape(shape)}}}?"  # in braces on a cluster
        else:
            size += len(text)
            pattern += _escaped(text)
    return size, f"^{pattern}$", bool(key.document)


def _lua_shape(shape: str) -> str:
    """Return the Lua pattern of a part, as exactly as Lua can: a text, a set of characters, or anything."""
    if _LITERAL.fullmatch(shape):
        return _escaped(shape)
    found = _CHARACTERS.fullmatch(shape)
    return ".+" if found is None else found[1] + ("+" if found[2] else "")


def _escaped(text: str) -> str:
    return _MAGIC.sub(r"%\1", text)
