"""Declares keys: each key is declared once, and everything else about it is derived from the declaration.

A `Key` gives its name to Python and to Lua, in both layouts. Its entry in `docs/keys.md`, the HTTP proxy's access
rules and the audit's checks come from it too. Do not type a key's pattern anywhere else.

On one server a name is exactly the documented one (`post:<id>:likes`). On a cluster the same name has braces
around its owner (`post:{<id>}:likes`), so all source data of one owner is in one slot and changes atomically.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import ClassVar, Literal

from msgspec import Struct

KeyType = Literal["string", "hash", "set", "zset", "list", "stream"]


class Layout(Enum):
    """How names are written: as documented, or with braces for a cluster."""

    PLAIN = "plain"
    BRACES = "braces"


class KeyAccess(Enum):
    """Who may read or write a key through the HTTP proxy. The API key may read everything except `NONE`."""

    PUBLIC = "everyone"
    MEMBERSHIP = "everyone for its size and their own membership, admins for all members"
    SELF = "its user"
    ADMIN = "admins"
    NONE = "none"


class HashField(Struct, frozen=True):
    """One field of a hash: its meaning and its access rules."""

    name: str
    help: str
    read: KeyAccess = KeyAccess.PUBLIC
    write: KeyAccess = KeyAccess.NONE
    max_length: int = 200  # characters that the proxy accepts
    value_regex: str = ""  # as `Key.element_regex`; empty: any value
    required: bool = False  # a hash without it violates an invariant
    encrypted: bool = False  # Plaza encrypts it with a key outside Valkey, and decrypts it for its user only
    recorded_as: str = ""  # the action of the security log if its user changes it


class HiddenWhile(Struct, frozen=True):
    """Hides a key from users while a hash has a field: the likes of a post, while the post is banned.

    The hash has the same owner. With `via`, it is the hash that this field of the key itself names.
    """

    pattern: str
    field: str
    via: str = ""

    def __str__(self) -> str:
        named = f" named by its `{self.via}`" if self.via else ""
        return f"hidden from users while the `{self.pattern}`{named} has `{self.field}`"


# The invariants that one line can declare. The audit checks them, and `docs/keys.md` lists them. `repair` names the
# repair command and its arguments, such as `follow <other> <username>`: `<username>` is the part of the key's own
# name, `<other>` the same part of the member, if both have one. Without it, the key's own `repair` is used.


class CountField(Struct, frozen=True):
    """The key's cardinality equals a field of a hash: `likesCount` of `post:<post>`."""

    pattern: str
    field: str
    repair: str = ""

    def __str__(self) -> str:
        return f"its size is `{self.field}` of `{self.pattern}`"


class MirrorOf(Struct, frozen=True):
    """For each member here, the owner's id is a member of the other key, as in both sides of a follow.

    With `same_score` both members have the same score.
    """

    pattern: str
    repair: str = ""
    same_score: bool = False

    def __str__(self) -> str:
        return f"the other side of `{self.pattern}`"


class Reference(Struct, frozen=True):
    """Each member, or the given field of a hash, names a key that exists."""

    pattern: str
    field: str = ""
    repair: str = ""

    def __str__(self) -> str:
        return f"{f'`{self.field}`' if self.field else 'each member'} has its `{self.pattern}`"


class RequiresKey(Struct, frozen=True):
    """The key exists only while another key of its owner exists: no likes without a post."""

    pattern: str
    repair: str = ""

    def __str__(self) -> str:
        return f"exists only with its `{self.pattern}`"


class SameMembers(Struct, frozen=True):
    """The key has the same members as another key of its owner, in a different order."""

    pattern: str

    def __str__(self) -> str:
        return f"the members of `{self.pattern}`"


class ScoreField(Struct, frozen=True):
    """Each score equals a field of the hash that the member names."""

    pattern: str
    field: str
    repair: str = ""

    def __str__(self) -> str:
        return f"each score is `{self.field}` of `{self.pattern}`"


class Formula(Struct, frozen=True):
    """The score or value is computed from other source data; the text says how."""

    description: str

    def __str__(self) -> str:
        return self.description


DeclaredInvariant = CountField | MirrorOf | Reference | RequiresKey | SameMembers | ScoreField | Formula


@dataclass(frozen=True, slots=True, eq=False)  # declared once: its hash need not read what is declared
class Key:
    """A family of keys. Call it with its parts to get a name in the current layout: `POST_LIKES(post)`."""

    pattern: str
    type: KeyType
    help: str
    contains: str = ""  # what a member, field or value is, for the documentation
    score: str = ""  # what a score means; only for a zset
    owner: str | None = None  # the part that gets the braces on a cluster
    fields: tuple[HashField, ...] = ()
    lifetime: str = "permanent"
    ttl_seconds: int | None = None  # the longest time to live the audit accepts; None: the key must not expire
    ttl_optional: bool = False  # with `ttl_seconds`: a key without a time to live is valid too
    element_regex: str = ""  # what a member, field name or string value looks like; `<post>` stands for a post's id
    value_regex: str = ""  # the same for the values of a hash
    repair: str = ""  # the owner's repair command and its arguments: `post <post>`
    # `post`: this key lists posts that are being deleted, as members or in its name. Their data may be incomplete.
    marks_deletion_of: str = ""
    invariants: tuple[DeclaredInvariant, ...] = ()
    read: KeyAccess = KeyAccess.NONE
    write: KeyAccess = KeyAccess.NONE
    hidden: HiddenWhile | None = None
    retired: bool = False  # an earlier release wrote it and no code reads it; a repair deletes it
    document: str = ""  # the documented name, if a document describes this key
    parts: tuple[str, ...] = field(init=False)
    plain: str = field(init=False)  # format strings of the name in each layout
    braced: str = field(init=False)

    # A process uses one Valkey, so the layout belongs to the process, not to each caller.
    layout: ClassVar[Layout] = Layout.PLAIN

    def __post_init__(self) -> None:
        parts = tuple(_PART.findall(self.pattern))
        assert self.owner is None or self.owner in parts, f"{self.pattern} has no part {self.owner}"
        assert not self.score or self.type == "zset", f"{self.pattern} has a score but is not a zset"
        assert not self.ttl_seconds or self.lifetime != "permanent", f"{self.pattern} expires: state its lifetime"
        put = object.__setattr__  # the class is frozen
        put(self, "parts", parts)
        put(self, "plain", _PART.sub("%s", self.pattern))
        put(self, "braced", _PART.sub(lambda m: "{%s}" if m[1] == self.owner else "%s", self.pattern))

    def __call__(self, *parts: str | int) -> str:
        return (self.plain if Key.layout is _PLAIN else self.braced) % parts

    def name(self, layout: Layout, *parts: str | int) -> str:
        """Return the name in a given layout."""
        return (self.plain if layout is Layout.PLAIN else self.braced) % parts

    def regex(self, layout: Layout, shapes: Mapping[str, str]) -> str:
        """Return a regular expression for names of this family, with a group for each part."""

        def group(match: re.Match[str]) -> str:
            inner = f"({shapes[match[1]]})"
            return rf"\{{{inner}\}}" if layout is Layout.BRACES and match[1] == self.owner else inner

        literal_and_parts = re.split(r"(<\w+>)", self.pattern)
        return "".join(_PART.sub(group, p) if _PART.fullmatch(p) else re.escape(p) for p in literal_and_parts)


_PART = re.compile(r"<(\w+)>")
_PLAIN = Layout.PLAIN  # reading a member of an Enum costs as much as making a name


def use_layout(layout: Layout) -> None:
    """Set the layout of this process, once, at start."""
    Key.layout = layout


class KeyMatch(Struct, frozen=True):
    """The family that a name belongs to, and the ids in the name."""

    key: Key
    parts: tuple[str, ...]


class Catalogue:
    """The keys of one domain, or of several joined, by the names that code uses for them.

    `shapes` maps each part of a pattern (`username`, `post`, …) to a regular expression without groups. A part means
    the same in every pattern of the catalogue.
    """

    def __init__(self, domain: str, keys: Mapping[str, Key], shapes: Mapping[str, str]) -> None:
        self.domain = domain
        self.keys = dict(keys)
        self.shapes = dict(shapes)
        self._matchers: dict[Layout, tuple[re.Pattern[str], list[tuple[int, Key]]]] = {}

    @classmethod
    def from_module(cls, domain: str, namespace: Mapping[str, object], shapes: Mapping[str, str]) -> Catalogue:
        """Collect the keys of a module: `CATALOGUE = Catalogue.from_module("social", globals(), {…})` at its end."""
        keys = {name.lower(): value for name, value in namespace.items() if isinstance(value, Key)}
        return cls(domain, keys, shapes)

    def __iter__(self) -> Iterator[tuple[str, Key]]:
        return iter(self.keys.items())

    def prefixed(self, prefix: str) -> Catalogue:
        """Return the same keys with names that begin with a prefix."""
        keys = {name: replace(key, pattern=prefix + key.pattern) for name, key in self}
        return Catalogue(self.domain, keys, self.shapes)

    def match(self, name: str, layout: Layout | None = None) -> KeyMatch | None:
        """Return the family of a name and its ids, or None if no family matches."""
        pattern, families = self._matcher(layout or Key.layout)
        found = pattern.fullmatch(name)
        if found is None or found.lastindex is None:
            return None
        first, key = next(f for f in families if found[f[0]] is not None)
        return KeyMatch(key, tuple(found[first + 1 + i] for i in range(len(key.parts))))

    def _matcher(self, layout: Layout) -> tuple[re.Pattern[str], list[tuple[int, Key]]]:
        if layout not in self._matchers:
            alternatives, families, group = [], [], 1
            # Names without parts come first: `score:` is not a `score:<group>` with an empty group.
            for key in sorted(self.keys.values(), key=lambda k: len(k.parts)):
                alternatives.append(f"({key.regex(layout, self.shapes)})")
                families.append((group, key))
                group += 1 + len(key.parts)
            self._matchers[layout] = re.compile("|".join(alternatives) or r"(?!)", re.DOTALL), families
        return self._matchers[layout]

    def lua(self, layout: Layout) -> str:
        """Return Lua source for the table `key`: each name as a function of its parts."""
        lines = ["local key = {}"]
        for name, key in self:
            body = f"'{key.braced if layout is Layout.BRACES else key.plain}'"
            for part in key.parts:
                body = body.replace("%s", f"' .. {part} .. '", 1)
            body = body.replace(" .. ''", "").replace("'' .. ", "")
            lines.append(f"function key.{name}({', '.join(key.parts)}) return {body} end")
        return "\n".join(lines) + "\n"


def join_catalogues(catalogues: list[Catalogue]) -> Catalogue:
    """Return all catalogues as one. Two keys with one name fail."""
    keys: dict[str, Key] = {}
    shapes: dict[str, str] = {}
    for catalogue in catalogues:
        for name, key in catalogue:
            assert keys.setdefault(name, key) is key, f"two keys are called {name}"
        for part, shape in catalogue.shapes.items():
            assert shapes.setdefault(part, shape) == shape, f"two shapes for <{part}>"
    return Catalogue("all", keys, shapes)
