"""Avatars: the picture of the profile, or a square of four shapes that is derived from the name and never changes."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Final

from markupsafe import Markup

from plaza.web.text_html import image_url

# Background and two shape colours, with enough contrast to each other and on light and dark pages.
_PALETTES: Final = (
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

# Shapes in a cell of 12 × 12: four quarter circles, two triangles, a disc, a small square.
_SHAPES: Final = (
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
def svg_content(name: str) -> str:
    """The paths of the avatar."""
    bits = hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()
    background, *colours = _PALETTES[bits[0] % len(_PALETTES)]
    paths = []
    for cell in range(4):
        x, y = cell % 2 * 12, cell // 2 * 12
        shape = _SHAPES[bits[1 + cell] % len(_SHAPES)]
        path = shape.format(x=x, y=y, r=x + 12, b=y + 12, cx=x + 6, cy=y + 6, ix=x + 3, iy=y + 3)
        paths.append(f'<path fill="{colours[bits[5 + cell] % 2]}" d="{path}"/>')
    return f'<path fill="{background}" d="M0 0h24v24H0z"/>{"".join(paths)}'


def avatar(name: str, picture: str = "") -> Markup:
    """The avatar for use in a page. It is hidden from screen readers, because the name is always beside it.

    The generated avatar is behind the picture, so it is seen if the picture cannot be loaded.
    """
    url = image_url(picture)
    if not url:
        return _generated_avatar(name)
    svg = Markup('<svg viewBox="0 0 24 24">{}</svg>').format(Markup(svg_content(name)))  # noqa: S704
    img = Markup('<img src="{}" alt="" loading="lazy" referrerpolicy="no-referrer">').format(url)
    return Markup('<span class="avatar picture" aria-hidden="true">{}{}</span>').format(svg, img)


def later_avatar(name: str) -> Markup:
    """A place for the avatar of a user whose picture is looked up when the page is complete (`mention_links.py`)."""
    return Markup('<i data-avatar="{}"></i>').format(name)


@lru_cache(4096)
def _generated_avatar(name: str) -> Markup:
    return Markup(f'<svg class="avatar" viewBox="0 0 24 24" aria-hidden="true">{svg_content(name)}</svg>')  # noqa: S704


def avatar_file(name: str) -> str:
    """The avatar as an SVG file."""
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24">{svg_content(name)}</svg>'
