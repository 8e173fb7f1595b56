"""Generates Valkey ACL rules from the key catalogues, for processes that should not have full access.

There are three roles:

- *service*, for `plaza serve` (API and worker): reads and writes the keys of the catalogues and no others.
- *worker*, for `plaza worker` and the operator's commands: the same, but keys that only requests write (rate limits,
  stored responses) are read-only.
- *reader*, for other programs: reads what the HTTP proxy returns for the API key, with the proxy's commands. It cannot
  read secrets.

ACLs select keys by glob patterns, which are less precise than a declaration: a reader of `user:<username>` also reads
private fields. But no reader pattern matches the name of a secret key. Where a name begins with a username, the glob
spells out the characters: `*_liked_posts` would also match secret keys of a user whose name ends like that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final

from plaza.core import keys as core
from plaza.core.keyspace import Catalogue, Key, KeyAccess, Layout
from plaza.core.tokens import USERNAME
from plaza.keyspace.proxy.commands import COMMANDS

# One character of a username as a Valkey glob, where a dash between two characters is always a range.
_USERNAME_CHARACTER, _MAX_USERNAME_LENGTH = "[-A-Za-z0-9._]", 30
assert f"[A-Za-z0-9._-]{{1,{_MAX_USERNAME_LENGTH}}}" == USERNAME

# Keys that any HTTP request may write, and only requests.
REQUEST_KEYS: Final = (core.LIMIT_USER, core.LIMIT_ADDRESS, core.IDEMPOTENCY, core.IDEMPOTENCY_DAY, core.SNAPSHOT)

# Longer ids, such as digests, stay `*`: each character takes ten in a rule.
MAX_SPELLED_CHARACTERS: Final = 16

# The commands that every client sends on connecting; the last three only on a cluster.
_CONNECT: Final = (
    "+hello +auth +ping +select +client|setname +client|setinfo +client|id +asking +readonly +cluster|slots"
)
# Valkey applies rules from left to right: first add categories, then remove the dangerous ones, then add back what
# Plaza needs of those.
_PLAZA: Final = (
    "+@read +@write +@transaction -@dangerous -@scripting -randomkey +info +bgrewriteaof +time +wait "
    "+client|tracking +client|caching +fcall +fcall_ro +function|list +function|load +function|delete"
)
_READER: Final = " ".join([_CONNECT, *(f"+{name.lower()}" for name, command in COMMANDS.items() if not command.writes)])


def acl_lines(catalogues: Sequence[Catalogue], layout: Layout) -> list[str]:
    """The lines of an ACL file. Users are off and have no password; the operator sets one and switches them on."""
    keys = [(key, catalogue) for catalogue in catalogues for _, key in catalogue]
    readable = [(key, catalogue) for key, catalogue in keys if key.read is not KeyAccess.NONE]
    request_keys = [(key, catalogue) for key, catalogue in keys if key in REQUEST_KEYS]
    other_keys = [(key, catalogue) for key, catalogue in keys if key not in REQUEST_KEYS]
    roles = (
        ("service", f"{_CONNECT} {_PLAZA}", _patterns("~", keys, layout)),
        ("worker", f"{_CONNECT} {_PLAZA}", _patterns("~", other_keys, layout) + _patterns("%R~", request_keys, layout)),
        ("reader", _READER, _patterns("%R~", readable, layout, precise=True)),
    )
    return [f"user plaza-{name} reset off {' '.join(patterns)} {commands}" for name, commands, patterns in roles]


def _patterns(
    permission: str, keys: Iterable[tuple[Key, Catalogue]], layout: Layout, *, precise: bool = False
) -> list[str]:
    """ACL patterns for these keys, without the ones that another pattern covers."""
    globs = list(dict.fromkeys(g for key, catalogue in keys for g in _globs(key, catalogue, layout, precise)))
    return [permission + g for g in globs if not any(other != g and fnmatchcase(g, other) for other in globs)]


def _globs(key: Key, catalogue: Catalogue, layout: Layout, precise: bool) -> list[str]:
    """The globs of a family: one, or one per username length if the name begins with a username to be spelled out."""
    first_shape = catalogue.shapes[key.parts[0]] if key.pattern.startswith("<") else ""
    if precise and layout is Layout.PLAIN and first_shape == USERNAME:
        rest = _PART.sub("*", key.pattern[key.pattern.index(">") + 1 :])
        return [_USERNAME_CHARACTER * length + rest for length in range(1, _MAX_USERNAME_LENGTH + 1)]
    name = key.plain if layout is Layout.PLAIN else key.braced
    return [name % tuple(_glob(catalogue.shapes[part], precise) for part in key.parts)]


def _glob(shape: str, precise: bool) -> str:
    """A shape that is also a valid glob, such as `db_len` or `[1-5]`, stays; every other becomes `*`.

    If `precise`, a short id of fixed length is spelled out: `webhook:*` would also match `webhook:<webhook>:queue`,
    which is closed.
    """
    if precise and (id := _FIXED_ID.fullmatch(shape)) and int(id[2]) <= MAX_SPELLED_CHARACTERS:
        return id[1] * int(id[2])
    return shape if _GLOB.fullmatch(shape) else "*"


_PART = re.compile(r"<\w+>")
_FIXED_ID = re.compile(r"(\[[\w-]+\])\{(\d+)\}")
_GLOB = re.compile(r"(?:[A-Za-z_:]|\[\d-\d\])+")
