"""A face for everybody: a paving tile of four stones, drawn from the name alone, the same everywhere and for ever."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Final

from markupsafe import Markup

# Ground, stone, stone: each set has enough contrast in itself and stands on light and dark paper.
_SETS: Final = (
    ("#0d5c56", "#7fd1c4", "#f2c14e"),
    ("#22577a", "#80ced7", "#f4d58d"),
    ("#5b3a6b", "#c8a2d8", "#f2b880"),
    ("#8a3b2a", "#f0a58a", "#f7dcb4"),
    ("#3d5a2b", "#a9cf7f", "#f0e2a0"),
    ("#4a4e69", "#b8bedd", "#f2d0a9"),
    ("#7a2e4d", "#f0a1bf", "#ffd9a0"),
    ("#1f4e5f", "#9ad1d4", "#f28482"),
    ("#6b4a1b", "#e0b25c", "#cfe3c8"),
    ("#2f3e6e", "#93a8f0", "#f5c6aa"),
)

# Each stone in its own 12 × 12: quarter circles by their corner, half a square, a disc, a small square.
_STONES: Final = (
    "M{x} {y}h12a12 12 0 0 1-12 12z",
    "M{r} {y}v12a12 12 0 0 1-12-12z",
    "M{r} {b}h-12a12 12 0 0 1 12-12z",
    "M{x} {b}v-12a12 12 0 0 1 12 12z",
    "M{x} {y}h12l-12 12z",
    "M{r} {b}h-12l12-12z",
    "M{cx} {cy}m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0",
    "M{ix} {iy}h6v6h-6z",
)


@lru_cache(4096)
def drawing(name: str) -> str:
    """The inside of the tile."""
    bits = hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()
    ground, *colours = _SETS[bits[0] % len(_SETS)]
    stones = []
    for place in range(4):
        x, y = place % 2 * 12, place // 2 * 12
        shape = _STONES[bits[1 + place] % len(_STONES)]
        path = shape.format(x=x, y=y, r=x + 12, b=y + 12, cx=x + 6, cy=y + 6, ix=x + 3, iy=y + 3)
        stones.append(f'<path fill="{colours[bits[5 + place] % 2]}" d="{path}"/>')
    return f'<path fill="{ground}" d="M0 0h24v24H0z"/>{"".join(stones)}'


@lru_cache(4096)
def avatar(name: str) -> Markup:
    """The tile in a page. It says nothing that the name beside it does not, so it is hidden from screen readers."""
    return Markup(f'<svg class="avatar" viewBox="0 0 24 24" aria-hidden="true">{drawing(name)}</svg>')  # noqa: S704


def file(name: str) -> str:
    """The tile as a file of its own, for the `avatar` field of a profile."""
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24">{drawing(name)}</svg>'
