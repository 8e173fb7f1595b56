"""Memory on a terminal: a bar of all of it, under it the domains and under those their families, each as wide as it is
large, as in a flame graph; then the figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from plaza.keyspace.memory import Memory, Usage
from plaza.keyspace.terminal_escape import harmless

_COLOURS: Final = {
    "core": "blue",
    "social": "red",
    "articles": "yellow",
    "challenges": "green",
    "live": "magenta",
    "shop": "cyan",
}
_OTHER: Final = "white"


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a bar."""

    label: str
    size: int
    colour: str


def show(memory: Memory, console: Console) -> None:
    """The bars and the table."""
    size = f"{decimal(memory.bytes)}{_error(memory.error)} in {memory.keys:,} keys"
    for bar in flames(memory, console.width):
        console.print(bar, no_wrap=True, overflow="crop", highlight=False)
    console.print(_table(memory))
    console.print(
        f"{size}, {'all measured' if memory.complete else 'some measured; ± is what 95 of 100 samples keep to'}."
    )


def flames(memory: Memory, width: int) -> list[Text]:
    """One line each: all, domains, families."""
    usages = sorted(memory.usages, key=lambda usage: (usage.domain, -usage.bytes))
    sizes = {domain: sum(u.bytes for u in some) for domain, some in groupby(usages, lambda usage: usage.domain)}
    domains = sorted(sizes, key=lambda domain: -sizes[domain])
    usages.sort(key=lambda usage: domains.index(usage.domain))
    return [
        _bar([Block(f"all {decimal(memory.bytes)}", memory.bytes, _OTHER)], width),
        _bar([Block(f"{name} {decimal(sizes[name])}", sizes[name], _colour(name)) for name in domains], width),
        _bar([Block(usage.pattern, usage.bytes, _colour(usage.domain)) for usage in usages], width),
    ]


def _colour(domain: str) -> str:
    return _COLOURS.get(domain, _OTHER)


def _bar(blocks: Sequence[Block], width: int) -> Text:
    """Blocks side by side. Ends are rounded, not widths, so that blocks stand under what they are part of."""
    whole = sum(block.size for block in blocks) or 1
    line, before, shade = Text(), 0, False
    for block in blocks:
        start, end = round(width * before / whole), round(width * (before + block.size) / whole)
        before += block.size
        room = end - start
        if room:
            label = block.label if len(block.label) < room else block.label[: max(room - 2, 0)] + "…" * (room > 1)
            line.append(label.ljust(room)[:room], style=f"black on {'bright_' if shade else ''}{block.colour}")
            shade = not shade
    return line


def _table(memory: Memory) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("family", overflow="fold")
    for name in ("keys", "bytes", "share", "no expiry"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("biggest", overflow="fold")
    for usage in memory.usages:
        # As text, for in a string `:top:` would be drawn as a picture, and `[red]` as a colour.
        table.add_row(*map(Text, _row(usage, memory.bytes or 1)))
    return table


def _row(usage: Usage, whole: int) -> tuple[str, ...]:
    size, name = max(usage.biggest, default=(0, ""))
    return (
        usage.pattern,
        f"{usage.keys:,}",
        f"{decimal(usage.bytes)}{_error(usage.error)}",
        f"{usage.bytes / whole:.1%}",
        f"{usage.share_lasting:.0%}",
        f"{decimal(size)} {harmless(name)}" if name else "",
    )


def _error(size: float) -> str:
    return f" ± {decimal(round(size))}" if size else ""
