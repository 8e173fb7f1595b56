"""Which route a path belongs to, found segment by segment, so that a thousand routes cost what ten do.

The path is split as it came over the wire and only then decoded, each segment alone: an id with `%2F` in it is an id
with a slash, never two segments, and no encoding can move a request to another route. A literal segment wins over a
parameter; where the literal leads nowhere the parameter is tried, so `/users/me/export` and `/users/{username}/posts`
live side by side and `/users/me/posts` is still found.

Clients climb at a segment of one or two dots, in any encoding, before they send anything. A value that is just that is
written with a tilde before it, `~..`, and one that begins so itself with one more.
"""

from __future__ import annotations

import re
from typing import Generic, TypeVar
from urllib.parse import quote, unquote_to_bytes

from plaza.core.errors import BadRequest

T = TypeVar("T")

# What no name of ours holds, and what breaks logs and terminals.
_CONTROL = re.compile("[\x00-\x1f\x7f]")
_DOTS = re.compile(r"~*\.{1,2}")
_TEMPLATE_SEGMENT = re.compile(r"\{([a-zA-Z_][a-zA-Z0-9_]*)\}|[^{}]+")


class Leaf(Generic[T]):
    """One path template and what answers there, by method."""

    __slots__ = ("methods", "names", "template")

    def __init__(self, template: str, names: tuple[str, ...]) -> None:
        self.template = template
        self.names = names
        self.methods: dict[str, T] = {}


class Node(Generic[T]):
    __slots__ = ("leaf", "literals", "parameter")

    def __init__(self) -> None:
        self.literals: dict[str, Node[T]] = {}
        self.parameter: Node[T] | None = None
        self.leaf: Leaf[T] | None = None


class Router(Generic[T]):
    def __init__(self) -> None:
        self.root: Node[T] = Node()

    def add(self, method: str, template: str, target: T) -> None:
        """Register a target; two for one method and template, or two names for one parameter, is a mistake."""
        node, names = self.root, []
        for segment in split(template):
            match = _TEMPLATE_SEGMENT.fullmatch(segment)
            assert match or segment == "", f"{template}: a segment is a literal or one {{parameter}}"
            if match and match[1]:
                names.append(match[1])
                node.parameter = node.parameter or Node()
                node = node.parameter
            else:
                node = node.literals.setdefault(segment, Node())
        node.leaf = node.leaf or Leaf(template, tuple(names))
        assert node.leaf.template == template, f"{template} and {node.leaf.template} are the same path"
        assert method not in node.leaf.methods, f"{method} {template} is registered twice"
        node.leaf.methods[method] = target

    def find(self, path: str) -> tuple[Leaf[T], list[str]] | None:
        """The leaf of a raw path, with its parameters still encoded; `None` where nothing is."""
        values: list[str] = []
        leaf = _find(self.root, split(path), 0, values)
        return None if leaf is None else (leaf, values)


def split(path: str) -> list[str]:
    return path.split("/")[1:]


def _find(node: Node[T], segments: list[str], at: int, values: list[str]) -> Leaf[T] | None:
    # A node has at most two ways on, and templates are a handful of segments deep: that bounds the search.
    while at < len(segments):
        segment = segments[at]
        at += 1
        literal, parameter = node.literals.get(segment), node.parameter
        if literal is not None:
            if parameter is None:
                node = literal
                continue
            held = len(values)
            leaf = _find(literal, segments, at, values)
            if leaf is not None:
                return leaf
            del values[held:]
        if parameter is None or not segment:  # an empty segment is no value
            return None
        values.append(segment)
        node = parameter
    return node.leaf


def decode_segment(segment: str) -> str:
    """One segment as text. What is not UTF-8, or holds control characters, is refused."""
    if "%" in segment:
        try:
            segment = unquote_to_bytes(segment).decode()
        except UnicodeDecodeError as error:
            raise BadRequest("The path is not valid UTF-8.") from error
        if _CONTROL.search(segment):
            raise BadRequest("The path holds control characters.")
    return segment[1:] if segment[:1] == "~" and _DOTS.fullmatch(segment) else segment


def encode_segment(text: str) -> str:
    """Any text as one segment, which `decode_segment` reads again."""
    return f"~{text}" if _DOTS.fullmatch(text) else quote(text, safe="")
