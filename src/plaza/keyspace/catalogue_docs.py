"""The catalogue written out: for people (`docs/keys.md`, the terminal) and for programs (JSON)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from plaza.core.keyspace import Access, Catalogue, Key

INTRODUCTION = """\
# Keys

Made from the catalogue by `make docs`; a test fails when it is stale. Names are those of one server. On a cluster the
part marked as *owner* stands in braces (`post:{<post>}:likes`), so that all keys of one owner share a slot.
"""


def markdown(catalogues: Iterable[Catalogue]) -> str:
    """The whole of `docs/keys.md`."""
    pages = [INTRODUCTION]
    for catalogue in catalogues:
        pages.append(f"## {catalogue.domain}\n")
        pages += [_section(key) for _, key in catalogue]
    return "\n".join(pages)


def _section(key: Key) -> str:
    lines = [f"### `{key.pattern}`\n", f"{key.help}\n"]
    lines += [f"- **{word}**: {says}" for word, says in _facts(key)]
    if key.fields:
        lines += ["", "| field | meaning | read by | written by |", "|---|---|---|---|"]
        lines += [f"| `{f.name}` | {f.help} | {f.read.value} | {f.write.value} |" for f in key.fields]
    return "\n".join(lines) + "\n"


def _facts(key: Key) -> list[tuple[str, str]]:
    """What there is to say about a key, leaving out what it does not have."""
    facts = [
        ("type", key.type),
        ("owner", f"`<{key.owner}>`" if key.owner else "none"),
        ("holds", key.of),
        ("looks like", _looks(key)),
        ("score", key.score),
        ("lives", key.lifetime),
        ("always", "; ".join(map(str, key.same))),
        ("proxy", _access(key)),
        ("documented as", f"`{key.document}`" if key.document else ""),
    ]
    return [(word, says) for word, says in facts if says]


def _looks(key: Key) -> str:
    """The shape of members, or of fields and their values, as the audit checks it."""
    shapes = [shape for shape in (key.holds, key.value) if shape]
    return " → ".join(f"`{shape}`" for shape in shapes)


def _access(key: Key) -> str:
    if key.read is key.write is Access.NOBODY:
        return "closed"
    hidden = f"; {key.hidden}" if key.hidden else ""
    return f"read by {key.read.value}, written by {key.write.value}{hidden}"


def records(catalogues: Iterable[Catalogue]) -> list[dict[str, Any]]:
    """The catalogue for programs."""
    return [
        {"domain": catalogue.domain, "name": name, "pattern": key.pattern, "help": key.help}
        | {word.replace(" ", "_"): says for word, says in _facts(key)}
        # Names as they are: backticks are for people.
        | {"owner": key.owner or None, "documented_as": key.document or None}
        | ({"fields": {f.name: f.help for f in key.fields}} if key.fields else {})
        for catalogue in catalogues
        for name, key in catalogue
    ]


def show(catalogues: Sequence[Catalogue], console: Console) -> None:
    """The catalogue as a table in the terminal. Below a name, what its document calls it if that is not the same."""
    table = Table(title="Keys", title_justify="left")
    for column in ("domain", "key", "type", "holds", "lives"):
        table.add_column(column, overflow="fold")
    for catalogue in catalogues:
        for _, key in catalogue:
            name = key.pattern if key.document in ("", key.pattern) else f"{key.pattern}\n({key.document})"
            # As text, for in a string `:top:` would be drawn as a picture.
            table.add_row(*map(Text, (catalogue.domain, name, key.type, key.of or key.help, key.lifetime)))
    console.print(table)
