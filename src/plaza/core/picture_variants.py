"""The sizes in which a picture is stored. Imports nothing: the process that decodes images starts with it."""

from __future__ import annotations

from typing import Final

# The width of each variant in pixels: a list, a post, the whole screen.
VARIANT_WIDTHS: Final = {"small": 320, "medium": 960, "large": 1920}

# A picture that is taller than this many times its width is scaled down to that height, so that a screenshot of a
# long page costs no more than a few photos.
MAX_HEIGHT_RATIO: Final = 4


def variant_size(width: int, height: int, variant: str) -> tuple[int, int]:
    """Return the size of a variant of a picture. A picture is never enlarged."""
    max_width = VARIANT_WIDTHS[variant]
    scale = min(1.0, max_width / width, max_width * MAX_HEIGHT_RATIO / height)
    return max(1, round(width * scale)), max(1, round(height * scale))
