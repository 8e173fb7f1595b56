"""Turns the drawings of the demo into pictures: one process for all, by the code that also writes uploads.

    python -I -m plaza.demo.drawing_process < drawings > results

Each line of standard input is a drawing as a JSON string of SVG. Each result has the form of `image_process.py`'s.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from plaza.core.picture_variants import variant_size
from plaza.media.image_process import WHITE, send_result, write_variants


def main() -> None:
    os.nice(10)
    os.environ["VIPS_CONCURRENCY"] = "1"
    import pyvips

    for line in sys.stdin:
        bodies: list[bytes] = []
        send_result(_draw(pyvips, json.loads(line), bodies), bodies)
        sys.stdout.flush()


def _draw(vips: Any, svg: str, bodies: list[bytes]) -> dict[str, Any]:
    image = vips.Image.svgload_buffer(svg.encode()).flatten(background=WHITE).copy_memory()
    size = image.width, image.height
    assert variant_size(*size, "large") == size, "drawings are not scaled down"
    return write_variants(image, size, bodies)


if __name__ == "__main__":
    main()
