"""What `plaza.media.image_process` does with a photo, by pillow: decode, turn, three sizes, WebP and JPEG.

python -m bench.peers.pillow_process < photo > files
"""

from __future__ import annotations

import io
import sys

from PIL import Image, ImageOps

from plaza.core.picture_variants import VARIANT_WIDTHS, variant_size
from plaza.media.image_process import JPEG_QUALITY, WEBP_EFFORT, WEBP_QUALITY


def main() -> None:
    image: Image.Image = Image.open(sys.stdin.buffer)
    size = variant_size(*image.size, "large")
    image.draft("RGB", size)  # the decoder of JPEG can skip detail
    image = ImageOps.exif_transpose(image)
    size = variant_size(*image.size, "large")
    for variant in sorted(VARIANT_WIDTHS, key=VARIANT_WIDTHS.__getitem__, reverse=True):
        image = image.resize(variant_size(*size, variant), Image.Resampling.LANCZOS)
        for format, options in (
            ("WEBP", {"quality": WEBP_QUALITY, "method": WEBP_EFFORT}),
            ("JPEG", {"quality": JPEG_QUALITY, "optimize": True, "progressive": True}),
        ):
            body = io.BytesIO()
            image.save(body, format, **options)
            sys.stdout.buffer.write(body.getvalue())


if __name__ == "__main__":
    main()
