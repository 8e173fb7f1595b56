"""Prints the catalogue as Markdown (`docs/keys.md`), as text for a terminal and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Any

from plaza.core.keyspace import Catalogue, HashField, Key, KeyAccess

INTRODUCTION = """\
# Keys

`make docs` generates this page from the key catalogues; a test fails when it is out of date. Names are those of a
standalone server. On a cluster the *owner* part is in braces (`post:{<post>}:likes`), so that all keys of one owner
share a slot.
"""


def markdown(catalogues: Iterable[Catalogue]) -> str:
    """The text of `docs/keys.md`."""
    pages = [INTRODUCTION]
    for catalogue in catalogues:
        pages.append(f"## {catalogue.domain}\n")
        pages += [_section(key) for _, key in catalogue]
    return "\n".join(pages)


def _section(key: Key) -> str:
    lines = [f"### `{key.pattern}`\n", f"{key.help}\n"]
    lines += [f"- **{_LABELS.get(name, name)}**: {text}" for name, text in _attributes(key)]
    if key.fields:
        lines += ["", "| field | meaning | read by | written by |", "|---|---|---|---|"]
        lines += [_field_row(f) for f in key.fields]
    return "\n".join(lines) + "\n"


# Attributes with another label in the Markdown page than in the JSON records, whose names are fixed.
_LABELS = {
    "holds": "content",
    "looks_like": "shape",
    "lives": "lifetime",
    "always": "invariants",
    "documented_as": "documented as",
}


def _field_row(field: HashField) -> str:
    help = f"{field.help}; encrypted" if field.encrypted else field.help
    return f"| `{field.name}` | {help} | {field.read.value} | {field.write.value} |"


def _attributes(key: Key) -> list[tuple[str, str]]:
    """Name and text of each attribute that the key has."""
    attributes = [
        ("type", key.type),
        ("owner", f"`<{key.owner}>`" if key.owner else "none"),
        ("holds", key.contains),
        ("looks_like", _shape(key)),
        ("score", key.score),
        ("lives", key.lifetime),
        ("always", "; ".join(map(str, key.invariants))),
        ("proxy", _access(key)),
        ("documented_as", f"`{key.document}`" if key.document else ""),
    ]
    return [(name, text) for name, text in attributes if text]


def _shape(key: Key) -> str:
    """The shape of members, or of fields and values, that the audit checks."""
    shapes = [shape for shape in (key.element_regex, key.value_regex) if shape]
    return " → ".join(f"`{shape}`" for shape in shapes)


def _access(key: Key) -> str:
    if key.read is key.write is KeyAccess.NONE:
        return "closed"
    hidden = f"; {key.hidden}" if key.hidden else ""
    written = "read-only" if key.write is KeyAccess.NONE else f"written by {key.write.value}"
    return f"read by {key.read.value}, {written}{hidden}"


def records(catalogues: Iterable[Catalogue]) -> list[dict[str, Any]]:
    """The catalogue as JSON-compatible records."""
    return [
        {"domain": catalogue.domain, "name": name, "pattern": key.pattern, "help": key.help}
        | dict(_attributes(key))
        # Without the backticks of the Markdown page.
        | {"owner": key.owner or None, "documented_as": key.document or None}
        | ({"fields": {f.name: f.help for f in key.fields}} if key.fields else {})
        for catalogue in catalogues
        for name, key in catalogue
    ]


def text(catalogues: Iterable[Catalogue], width: int) -> str:
    """The catalogue for a terminal. A documented name that differs from the pattern is shown beside it."""
    lines = []
    for catalogue in catalogues:
        lines.append(f"Keys of {catalogue.domain}")
        for _, key in catalogue:
            documented = f"  ({key.document})" if key.document not in ("", key.pattern) else ""
            lines.append(f"  {key.pattern}{documented}  {key.type}, {key.lifetime}")
            lines += textwrap.wrap(key.contains or key.help, width, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return "\n".join(lines)
