"""Every key is declared once, here in code, and everything else about it is derived.

A `Key` gives its name to Python and to Lua, in both layouts; its page in `docs/keys.md`; what the HTTP proxy may
read and write of it; what the audit checks. Typing a key's pattern anywhere else is a mistake.

On one server a name is exactly the documented one (`post:<id>:likes`). On a cluster the same name carries braces
round its owner (`post:{<id>}:likes`), so that all facts of one owner share a slot and change in one atomic step.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, Literal

KeyType = Literal["string", "hash", "set", "zset", "list", "stream"]


class Layout(Enum):
    """How names are written: as the documents have them, or with braces for a cluster."""

    PLAIN = "plain"
    BRACES = "braces"


class Access(Enum):
    """Who may read or write through the HTTP proxy. The API key sees all but what is for `NOBODY`: secrets."""

    PUBLIC = "everyone"
    SELF = "its user"
    ADMIN = "admins"
    NOBODY = "nobody"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a hash: what it means and who sees it."""

    name: str
    help: str
    read: Access = Access.PUBLIC
    write: Access = Access.NOBODY
    most: int = 200  # characters that may be written through the proxy
    shape: str = ""  # what its value looks like, as `Key.holds` says it; anything if empty
    needed: bool = False  # a hash without it is broken


@dataclass(frozen=True, slots=True)
class Hidden:
    """Not shown to people while a hash has this field: what is on a post, while that is banned.

    The hash is one of the same owner, or with `via` the one that this field of the key's own names.
    """

    pattern: str
    field: str
    via: str = ""

    def __str__(self) -> str:
        named = f" that its `{self.via}` names" if self.via else ""
        return f"hidden from people while the `{self.pattern}`{named} has `{self.field}`"


# What is always true of a key, in one line beside it; the audit checks it, and `docs/keys.md` says it. `mend` names the
# verb that makes it true again and what that verb must be told, such as `follow <other> <username>`: `<username>` is
# the part of the key's own name, `<other>` the same part of the member, where both have one. Left out, it is the key's.


@dataclass(frozen=True, slots=True)
class Counts:
    """The key's cardinality is also a field of a hash: `post:<post>` `likesCount`."""

    pattern: str
    field: str

    def __str__(self) -> str:
        return f"its size is `{self.field}` of `{self.pattern}`"


@dataclass(frozen=True, slots=True)
class Mirrors:
    """A member here means our own id is a member there: both sides of a follow. With `alike`, at the same score."""

    pattern: str
    repair: str = ""
    alike: bool = False

    def __str__(self) -> str:
        return f"the other side of `{self.pattern}`"


@dataclass(frozen=True, slots=True)
class Refers:
    """Each member (or a field, for a hash that has fields) names a key that exists."""

    pattern: str
    field: str = ""
    repair: str = ""

    def __str__(self) -> str:
        return f"{f'`{self.field}`' if self.field else 'each member'} has its `{self.pattern}`"


@dataclass(frozen=True, slots=True)
class Belongs:
    """The key is there only while its owner is: no likes without a post."""

    pattern: str
    repair: str = ""

    def __str__(self) -> str:
        return f"only beside its `{self.pattern}`"


@dataclass(frozen=True, slots=True)
class Orders:
    """The key has the same members as another key of its owner, in an order of its own."""

    pattern: str

    def __str__(self) -> str:
        return f"the members of `{self.pattern}`"


@dataclass(frozen=True, slots=True)
class Scored:
    """Each score is a field of the hash that the member names."""

    pattern: str
    field: str
    repair: str = ""

    def __str__(self) -> str:
        return f"each score is `{self.field}` of `{self.pattern}`"


@dataclass(frozen=True, slots=True)
class Formula:
    """The score or value follows from other facts, by a rule that words can say."""

    says: str

    def __str__(self) -> str:
        return self.says


Invariant = Counts | Mirrors | Refers | Belongs | Orders | Scored | Formula


def counts(pattern: str, field: str) -> Counts:
    return Counts(pattern, field)


@dataclass(frozen=True, slots=True)
class Key:
    """A family of keys. Call it with its parts to get a name in the layout in use: `POST_LIKES(post)`."""

    pattern: str
    type: KeyType
    help: str
    of: str = ""  # what a member, field or value is
    score: str = ""  # what a score means; only for a zset
    owner: str | None = None  # the part that gets the braces on a cluster
    fields: tuple[Field, ...] = ()
    lifetime: str = "for ever"
    ttl_seconds: int | None = None  # the longest time to live the audit accepts; None: it must not expire
    may_stay: bool = False  # of a key with `ttl_seconds`: without a time to live it is right too
    # What a member, field or value looks like: a regular expression in which `<post>` is a post's id.
    holds: str = ""
    value: str = ""  # the same for the values of a hash
    repair: str = ""  # what makes it true again: a verb of its owner and the ids it must be told, `post <post>`
    # `post`: it notes posts that are being removed, as members or in its name: what is said of them may be half gone.
    leaving: str = ""
    same: tuple[Invariant, ...] = ()
    read: Access = Access.NOBODY
    write: Access = Access.NOBODY
    hidden: Hidden | None = None
    document: str = ""  # the documented name, where a document has this key
    parts: tuple[str, ...] = field(init=False)
    plain: str = field(init=False)
    braced: str = field(init=False)

    # One process speaks to one Valkey, so the layout is the process's, not each caller's.
    layout: ClassVar[Layout] = Layout.PLAIN

    def __post_init__(self) -> None:
        parts = tuple(_PART.findall(self.pattern))
        assert self.owner is None or self.owner in parts, f"{self.pattern} has no part {self.owner}"
        assert not self.score or self.type == "zset", f"{self.pattern} is no zset but has a score"
        put = object.__setattr__  # the class is frozen for everyone else
        put(self, "parts", parts)
        put(self, "plain", _PART.sub("%s", self.pattern))
        put(self, "braced", _PART.sub(lambda m: "{%s}" if m[1] == self.owner else "%s", self.pattern))

    def __call__(self, *parts: str | int) -> str:
        return (self.plain if Key.layout is Layout.PLAIN else self.braced) % parts

    def name(self, layout: Layout, *parts: str | int) -> str:
        """The name in a given layout, whatever is in use."""
        return (self.plain if layout is Layout.PLAIN else self.braced) % parts

    def regex(self, layout: Layout, shapes: Mapping[str, str]) -> str:
        """A pattern for names of this family, with a group for each part."""

        def group(match: re.Match[str]) -> str:
            inner = f"({shapes[match[1]]})"
            return rf"\{{{inner}\}}" if layout is Layout.BRACES and match[1] == self.owner else inner

        literal_and_parts = re.split(r"(<\w+>)", self.pattern)
        return "".join(_PART.sub(group, p) if _PART.fullmatch(p) else re.escape(p) for p in literal_and_parts)


_PART = re.compile(r"<(\w+)>")


def use_layout(layout: Layout) -> None:
    """Fix how this process writes key names: once, at start, before the first call."""
    Key.layout = layout


@dataclass(frozen=True, slots=True)
class Match:
    """What a name turned out to be: its family and the ids in it."""

    key: Key
    parts: tuple[str, ...]


class Catalogue:
    """The keys of one domain (or of several, joined), by the names that code uses for them.

    `shapes` says what each part of a pattern looks like (`username`, `post`, …), as regular expressions without
    groups; a part means the same in every pattern of the catalogue.
    """

    def __init__(self, domain: str, keys: Mapping[str, Key], shapes: Mapping[str, str]) -> None:
        self.domain = domain
        self.keys = dict(keys)
        self.shapes = dict(shapes)
        self._matchers: dict[Layout, tuple[re.Pattern[str], list[tuple[int, Key]]]] = {}

    @classmethod
    def of(cls, domain: str, namespace: Mapping[str, object], shapes: Mapping[str, str]) -> Catalogue:
        """The catalogue of a module: `CATALOGUE = Catalogue.of("social", globals(), {…})`, below its keys."""
        keys = {name.lower(): value for name, value in namespace.items() if isinstance(value, Key)}
        return cls(domain, keys, shapes)

    def __iter__(self) -> Iterator[tuple[str, Key]]:
        return iter(self.keys.items())

    def match(self, name: str, layout: Layout | None = None) -> Match | None:
        """The family a name belongs to, or None for a key nobody declared."""
        pattern, families = self._matcher(layout or Key.layout)
        found = pattern.fullmatch(name)
        if found is None or found.lastindex is None:
            return None
        first, key = next(f for f in families if found[f[0]] is not None)
        return Match(key, tuple(found[first + 1 + i] for i in range(len(key.parts))))

    def _matcher(self, layout: Layout) -> tuple[re.Pattern[str], list[tuple[int, Key]]]:
        if layout not in self._matchers:
            alternatives, families, group = [], [], 1
            # Names without parts first: `score:` is itself, not a `score:<group>` with nothing in it.
            for key in sorted(self.keys.values(), key=lambda k: len(k.parts)):
                alternatives.append(f"({key.regex(layout, self.shapes)})")
                families.append((group, key))
                group += 1 + len(key.parts)
            self._matchers[layout] = re.compile("|".join(alternatives) or r"(?!)", re.DOTALL), families
        return self._matchers[layout]

    def lua(self, layout: Layout) -> str:
        """The `key` table of a library: the same names, as Lua functions of the same parts."""
        lines = ["local key = {}"]
        for name, key in self:
            body = f"'{key.braced if layout is Layout.BRACES else key.plain}'"
            for part in key.parts:
                body = body.replace("%s", f"' .. {part} .. '", 1)
            body = body.replace(" .. ''", "").replace("'' .. ", "")
            lines.append(f"function key.{name}({', '.join(key.parts)}) return {body} end")
        return "\n".join(lines) + "\n"


def join(catalogues: list[Catalogue]) -> Catalogue:
    """All catalogues as one, for what looks at the whole keyspace. A clash of names is refused."""
    keys: dict[str, Key] = {}
    shapes: dict[str, str] = {}
    for catalogue in catalogues:
        for name, key in catalogue:
            assert keys.setdefault(name, key) is key, f"two keys are called {name}"
        for part, shape in catalogue.shapes.items():
            assert shapes.setdefault(part, shape) == shape, f"two shapes for <{part}>"
    return Catalogue("all", keys, shapes)
