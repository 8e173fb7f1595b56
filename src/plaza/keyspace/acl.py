"""Access rules for Valkey itself, by the same declarations: who connects with less than everything does less harm.

Three roles. The *service* is what `plaza serve` needs, which is API and worker in one: it reads and writes the keys of
the catalogue and no others. The *worker* is `plaza worker` and the operator's commands: the same, but what only
requests leave behind, such as rate limits and kept answers, it can look at and not change. The *reader* is another
program that wants to see what Plaza writes: it reads what the proxy would read for the API key, by the commands that
the proxy has, and no secret.

Valkey knows keys by glob patterns, which say less than a declaration does: a reader of `user:<username>` reads private
fields too. But no pattern of the reader's fits the name of a secret. That takes care where a name begins with an id,
since `*_liked_posts` would also fit the secrets of somebody who is called so: there a username is spelled out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final

from plaza.core import keys as core
from plaza.core.keyspace import Access, Catalogue, Key, Layout
from plaza.core.tokens import USERNAME
from plaza.keyspace.proxy.commands import COMMANDS

# One character of a username, as Valkey's globs have it: there a dash between two characters is always a range.
_ONE, _MOST = "[-A-Za-z0-9._]", 30
assert f"[A-Za-z0-9._-]{{1,{_MOST}}}" == USERNAME

# What requests leave behind by being asked, whatever they ask for.
OF_REQUESTS: Final = (core.LIMIT_USER, core.LIMIT_ADDRESS, core.IDEMPOTENCY, core.IDEMPOTENCY_DAY, core.SNAPSHOT)

# What every client does to begin with; the last ones only on a cluster.
_CONNECT: Final = (
    "+hello +auth +ping +select +client|setname +client|setinfo +client|id +asking +readonly +cluster|slots"
)
# Rules count from left to right: whole classes first, then what is dangerous in them goes, then what is needed of that.
_OURS: Final = (
    "+@read +@write +@transaction -@dangerous -@scripting -randomkey +info +bgrewriteaof +time "
    "+client|tracking +client|caching +fcall +fcall_ro +function|list +function|load +function|delete"
)
_READER: Final = " ".join([_CONNECT, *(f"+{name.lower()}" for name, command in COMMANDS.items() if not command.writes)])


def rules(catalogues: Sequence[Catalogue], layout: Layout) -> list[str]:
    """The lines of an ACL file. Users are off, without a password: an operator gives them one and switches them on."""
    everything = [(key, catalogue) for catalogue in catalogues for _, key in catalogue]
    readable = [(key, catalogue) for key, catalogue in everything if key.read is not Access.NOBODY]
    asked = [(key, catalogue) for key, catalogue in everything if key in OF_REQUESTS]
    rest = [(key, catalogue) for key, catalogue in everything if key not in OF_REQUESTS]
    roles = (
        ("service", f"{_CONNECT} {_OURS}", _patterns("~", everything, layout)),
        ("worker", f"{_CONNECT} {_OURS}", _patterns("~", rest, layout) + _patterns("%R~", asked, layout)),
        ("reader", _READER, _patterns("%R~", readable, layout, spelled=True)),
    )
    return [f"user plaza-{name} reset off {' '.join(patterns)} {commands}" for name, commands, patterns in roles]


def _patterns(right: str, keys: Iterable[tuple[Key, Catalogue]], layout: Layout, *, spelled: bool = False) -> list[str]:
    """Patterns for all these families, without those that another one covers."""
    found = list(dict.fromkeys(glob for key, catalogue in keys for glob in _globs_of(key, catalogue, layout, spelled)))
    return [right + glob for glob in found if not any(other != glob and fnmatchcase(glob, other) for other in found)]


def _globs_of(key: Key, catalogue: Catalogue, layout: Layout, spelled: bool) -> list[str]:
    """A family's pattern; several where it begins with a username that no brace marks and that is to be spelled out."""
    begins = catalogue.shapes[key.parts[0]] if key.pattern.startswith("<") else ""
    if spelled and layout is Layout.PLAIN and begins == USERNAME:
        rest = _PART.sub("*", key.pattern[key.pattern.index(">") + 1 :])
        return [_ONE * length + rest for length in range(1, _MOST + 1)]
    name = key.plain if layout is Layout.PLAIN else key.braced
    return [name % tuple(_glob_of(catalogue.shapes[part]) for part in key.parts)]


def _glob_of(shape: str) -> str:
    """A part whose shape is a glob already, such as `db_len` or `[1-5]`, says itself; any other may be anything."""
    return shape if _GLOB.fullmatch(shape) else "*"


_PART = re.compile(r"<\w+>")
_GLOB = re.compile(r"(?:[A-Za-z_:]|\[\d-\d\])+")
