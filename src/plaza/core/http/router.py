"""Finds the route of a path in a tree of segments. The cost depends on the path, not on the number of routes.

The path is split first, and each segment is decoded after that: an id that contains `%2F` is one segment with a slash,
and no encoding can move a request to another route. A literal segment wins over a parameter. If the literal leads to no
route, the parameter is tried: `/users/me/posts` matches `/users/{username}/posts` although `/users/me/export` exists.
A parameter with an extension, which can only be the last segment (`/users/{username}.atom`), wins over one without.

Clients resolve the segments `.` and `..`, in any encoding, before they send a request. A value of one or two dots is
therefore sent with a tilde before it (`~..`), and a value that looks like that with one more tilde.
"""

from __future__ import annotations

import re
from typing import Generic, TypeVar
from urllib.parse import quote, unquote_to_bytes

from plaza.core.errors import BadRequest

T = TypeVar("T")

# No name contains them, and they break logs and terminals.
_CONTROL = re.compile("[\x00-\x1f\x7f]")
_DOTS = re.compile(r"~*\.{1,2}")
_TEMPLATE_SEGMENT = re.compile(r"\{([a-zA-Z_][a-zA-Z0-9_]*)\}(\.[a-z]+)?|[^{}]+")


class RouteNode(Generic[T]):
    """A path template with its targets by method."""

    __slots__ = ("methods", "names", "template")

    def __init__(self, template: str, names: tuple[str, ...]) -> None:
        self.template = template
        self.names = names
        self.methods: dict[str, T] = {}


class TreeNode(Generic[T]):
    """A position in the tree, with the segments that may follow."""

    __slots__ = ("literals", "parameter", "route", "suffixed")

    def __init__(self) -> None:
        self.literals: dict[str, TreeNode[T]] = {}
        self.parameter: TreeNode[T] | None = None
        self.suffixed: dict[str, TreeNode[T]] = {}  # parameters with an extension, by the extension
        self.route: RouteNode[T] | None = None


class Router(Generic[T]):
    """A tree of path templates."""

    def __init__(self) -> None:
        self.root: TreeNode[T] = TreeNode()

    def add(self, method: str, template: str, target: T) -> None:
        """Register a target. A method and template can be registered once."""
        node, names = self.root, []
        for segment in split(template):
            match = _TEMPLATE_SEGMENT.fullmatch(segment)
            assert match or segment == "", f"{template}: a segment is a literal, {{parameter}} or {{parameter}}.ext"
            if match and match[2]:
                names.append(match[1])
                node = node.suffixed.setdefault(match[2], TreeNode())
            elif match and match[1]:
                names.append(match[1])
                node.parameter = node.parameter or TreeNode()
                node = node.parameter
            else:
                node = node.literals.setdefault(segment, TreeNode())
        node.route = node.route or RouteNode(template, tuple(names))
        assert node.route.template == template, f"{template} and {node.route.template} are the same path"
        assert method not in node.route.methods, f"{method} {template} is registered twice"
        node.route.methods[method] = target

    def find(self, path: str) -> tuple[RouteNode[T], list[str]] | None:
        """The route node of a raw path and its parameter values, still encoded; None if there is no route."""
        values: list[str] = []
        found = _find(self.root, split(path), 0, values)
        return None if found is None else (found, values)


def parameter_names(template: str) -> list[str]:
    """The names of a template's parameters, in order."""
    return [match[1] for segment in split(template) if (match := _TEMPLATE_SEGMENT.fullmatch(segment)) and match[1]]


def split(path: str) -> list[str]:
    """The segments of a path that starts with a slash."""
    return path.split("/")[1:]


def _find(node: TreeNode[T], segments: list[str], at: int, values: list[str]) -> RouteNode[T] | None:
    # A node has at most two continuations, and templates have few segments: that bounds the search.
    while at < len(segments):
        segment = segments[at]
        at += 1
        literal, parameter = node.literals.get(segment), node.parameter
        if literal is not None:
            if parameter is None and not node.suffixed:
                node = literal
                continue
            count = len(values)
            found = _find(literal, segments, at, values)
            if found is not None:
                return found
            del values[count:]
        if node.suffixed:
            stem, dot, extension = segment.rpartition(".")
            suffixed = node.suffixed.get(dot + extension) if stem else None
            found = _find(suffixed, segments, at, [*values, stem]) if suffixed is not None else None
            if found is not None:
                values.append(stem)
                return found
        if parameter is None or not segment:  # an empty segment is not a value
            return None
        values.append(segment)
        node = parameter
    return node.route


def decode_segment(segment: str) -> str:
    """Decode one segment. Raises `BadRequest` if it is not UTF-8 or contains control characters."""
    if "%" in segment:
        try:
            segment = unquote_to_bytes(segment).decode()
        except UnicodeDecodeError as error:
            raise BadRequest("The path is not valid UTF-8.") from error
        if _CONTROL.search(segment):
            raise BadRequest("The path contains control characters.")
    return segment[1:] if segment[:1] == "~" and _DOTS.fullmatch(segment) else segment


def encode_segment(text: str) -> str:
    """Encode any text as one segment; `decode_segment` is the inverse."""
    return f"~{text}" if _DOTS.fullmatch(text) else quote(text, safe="")
