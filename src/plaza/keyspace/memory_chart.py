"""Prints a memory report on the terminal: a flame graph (total, domains, families), then a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from plaza.keyspace.memory import FamilyUsage, Memory
from plaza.keyspace.terminal_escape import escape_controls

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
    """One segment of a bar."""

    label: str
    size: int
    colour: str


def show(memory: Memory, console: Console) -> None:
    """Print the bars, the table and the total."""
    size = f"{decimal(memory.bytes)}{_error(memory.error)} in {memory.keys:,} keys"
    for bar in bars(memory, console.width):
        console.print(bar, no_wrap=True, overflow="crop", highlight=False)
    console.print(_table(memory))
    console.print(
        f"{size}, {'all measured' if memory.complete else 'estimated from a sample; ± is the 95% confidence interval'}."
    )


def bars(memory: Memory, width: int) -> list[Text]:
    """One bar each for the total, the domains and the families."""
    usages = sorted(memory.usages, key=lambda usage: (usage.domain, -usage.bytes))
    sizes = {domain: sum(u.bytes for u in group) for domain, group in groupby(usages, lambda usage: usage.domain)}
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
    """Blocks side by side. Their ends are rounded, not their widths, so that each bar lines up with the one above."""
    total = sum(block.size for block in blocks) or 1
    line, before, shade = Text(), 0, False
    for block in blocks:
        start, end = round(width * before / total), round(width * (before + block.size) / total)
        before += block.size
        cells = end - start
        if cells:
            label = block.label if len(block.label) < cells else block.label[: max(cells - 2, 0)] + "…" * (cells > 1)
            line.append(label.ljust(cells)[:cells], style=f"black on {'bright_' if shade else ''}{block.colour}")
            shade = not shade
    return line


def _table(memory: Memory) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("family", overflow="fold")
    for name in ("keys", "bytes", "share", "no expiry"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("biggest", overflow="fold")
    for usage in memory.usages:
        # `Text` prevents rich from drawing `:top:` as an emoji and `[red]` as a colour.
        table.add_row(*map(Text, _row(usage, memory.bytes or 1)))
    return table


def _row(usage: FamilyUsage, total_bytes: int) -> tuple[str, ...]:
    size, name = max(usage.biggest, default=(0, ""))
    return (
        usage.pattern,
        f"{usage.keys:,}",
        f"{decimal(usage.bytes)}{_error(usage.error)}",
        f"{usage.bytes / total_bytes:.1%}",
        f"{usage.share_without_expiry:.0%}",
        f"{decimal(size)} {escape_controls(name)}" if name else "",
    )


def _error(size: float) -> str:
    return f" ± {decimal(round(size))}" if size else ""
