"""Pictures are decoded in a process with limits, and written again. No file harms the process of the API."""

from __future__ import annotations

import io
import tempfile

import blurhash
import pytest
from PIL import Image, PngImagePlugin

from plaza.core.errors import Unavailable
from plaza.media import processor as processor_module
from plaza.media.model import BadImage
from plaza.media.processor import ImageProcessor, ProcessedImage
from tests.media.conftest import MAX_PIXELS, process
from tests.media.images import animation, drawn, encoded, hostile_files, photo_with_location, picture, png_of

HOSTILE = hostile_files()


def opened(image: ProcessedImage, variant: str, format: str) -> Image.Image:
    (body,) = [body for file, body in image.files if (file.variant, file.format) == (variant, format)]
    return Image.open(io.BytesIO(body))


@pytest.mark.parametrize("what", HOSTILE)
async def test_a_hostile_file_is_refused(what: str) -> None:
    filename, content = HOSTILE[what]
    with pytest.raises(BadImage) as refused:
        await process(content, filename)
    assert refused.value.status == 422
    assert refused.value.extra["field"] == "file"
    assert len(refused.value.detail) > 20


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "AVIF", "GIF"])
async def test_every_accepted_format_is_written_again_as_webp_and_jpeg(format: str) -> None:
    image = await process(picture(640, 480, format), f"Photo.{format}")
    assert (image.width, image.height) == (640, 480)
    for variant, size in (("small", (320, 240)), ("medium", (640, 480)), ("large", (640, 480))):
        assert {file.format for file, _ in image.files if file.variant == variant} >= {"jpeg"}
        for file, body in image.files:
            if file.variant == variant:
                shown = Image.open(io.BytesIO(body))
                assert (shown.format, shown.size) == (file.format.upper(), size)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((4000, 1000), {"small": (320, 80), "medium": (960, 240), "large": (1920, 480)}),
        ((100, 50), {"small": (100, 50), "medium": (100, 50), "large": (100, 50)}),
        ((1, 1), {"small": (1, 1), "medium": (1, 1), "large": (1, 1)}),
        # Taller than four times its width: the height decides.
        ((100, 9000), {"small": (14, 1280), "medium": (43, 3840), "large": (85, 7680)}),
    ],
)
async def test_variants_have_their_width_and_are_never_enlarged(
    size: tuple[int, int], expected: dict[str, tuple[int, int]]
) -> None:
    image = await process(png_of(*size) if size == (1, 1) else encoded(drawn(*size)))
    assert {variant: opened(image, variant, "jpeg").size for variant in expected} == expected


@pytest.mark.parametrize("orientation", range(1, 9))
async def test_the_orientation_is_applied(orientation: int) -> None:
    turned = orientation >= 5
    image = await process(photo_with_location(80, 40, orientation))
    assert (image.width, image.height) == ((40, 80) if turned else (80, 40))
    expected = _upright(Image.open(io.BytesIO(photo_with_location(80, 40, 1))), orientation)
    shown = opened(image, "large", "jpeg").convert("RGB")
    assert _distance(shown, expected) < 12


def _upright(image: Image.Image, orientation: int) -> Image.Image:
    turn = Image.Transpose
    steps = {
        2: turn.FLIP_LEFT_RIGHT,
        3: turn.ROTATE_180,
        4: turn.FLIP_TOP_BOTTOM,
        5: turn.TRANSPOSE,
        6: turn.ROTATE_270,
        7: turn.TRANSVERSE,
        8: turn.ROTATE_90,
    }
    return image.convert("RGB") if orientation == 1 else image.convert("RGB").transpose(steps[orientation])


def _distance(one: Image.Image, other: Image.Image) -> float:
    assert one.size == other.size
    pairs = zip(one.tobytes(), other.tobytes(), strict=True)
    return sum(abs(a - b) for a, b in pairs) / len(one.tobytes())


async def test_no_file_has_metadata() -> None:
    original = photo_with_location()
    assert b"Ana Secret" in original
    image = await process(original)
    for _, body in image.files:
        for secret in (b"Ana Secret", b"secret comment", b"Exif", b"ICC_PROFILE", b"http://ns.adobe.com"):
            assert secret not in body
        assert not dict(Image.open(io.BytesIO(body)).getexif())


async def test_transparency_stays_in_webp_and_is_white_in_jpeg() -> None:
    image = await process(encoded(Image.new("RGBA", (40, 40), (255, 0, 0, 0))))
    assert opened(image, "small", "webp").convert("RGBA").getpixel((5, 5))[3] == 0  # type: ignore[index]
    assert opened(image, "small", "jpeg").convert("RGB").getpixel((5, 5)) == (255, 255, 255)


async def test_webp_is_left_out_where_jpeg_is_smaller() -> None:
    image = await process(encoded(drawn(400, 300).convert("P")))  # dithered
    sizes = {(file.variant, file.format): file.bytes for file, _ in image.files}
    assert ("large", "webp") not in sizes
    for variant, format in sizes:
        if format == "webp":
            assert sizes[variant, "webp"] < sizes[variant, "jpeg"]


async def test_an_animation_stays_one() -> None:
    image = await process(animation(frames=4, width=340, height=34))
    small = opened(image, "small", "webp")
    assert (small.size, getattr(small, "n_frames", 1)) == ((320, 32), 4)
    assert opened(image, "small", "jpeg").size == (320, 32)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
async def test_every_kind_of_pixel_is_accepted(mode: str) -> None:
    image = await process(
        encoded(drawn(mode="RGB" if mode == "I;16" else mode).convert("L" if mode == "I;16" else mode))
    )
    assert opened(image, "small", "jpeg").size == (64, 48)


async def test_cmyk_is_accepted() -> None:
    image = await process(encoded(drawn(mode="CMYK"), "JPEG"), "print.jpg")
    assert opened(image, "small", "jpeg").mode == "RGB"


async def test_the_same_picture_gives_the_same_files() -> None:
    original = picture(500, 300, "JPEG")
    assert await process(original, "a.jpg") == await process(original, "b.jpeg")


async def test_a_blurhash_has_the_colours_of_the_picture() -> None:
    image = await process(encoded(Image.new("RGB", (60, 40), (200, 30, 90))))
    decoded = blurhash.decode(image.blurhash, 4, 3)
    assert all(abs(a - b) < 8 for a, b in zip(decoded[1][2], (200, 30, 90), strict=True))


async def test_more_pixels_than_the_setting_are_refused_before_they_are_decoded() -> None:
    content = png_of(300, 200)
    with pytest.raises(BadImage, match="300 × 200 pixels"):
        await process(content, max_pixels=59_999)


def _noise() -> bytes:
    """A picture that takes more than a second to write again."""
    return encoded(Image.effect_noise((1900, 2500), 90), "JPEG")


@pytest.mark.parametrize(
    ("limit", "value", "content"),
    [
        ("CPU_SECONDS", 1, _noise()),
        ("WALL_SECONDS", 0, _noise()),
        ("BASE_MEMORY_BYTES", -550_000_000, picture(2000, 2000)),
    ],
)
async def test_a_process_over_its_limits_ends_and_the_next_picture_is_processed(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: float, content: bytes
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(processor_module, limit, value)
        with pytest.raises(BadImage, match=r"It (takes|needs) too"):
            await process(content)
    assert (await process(picture())).width == 64


async def test_an_upload_that_waits_too_long_for_its_turn_is_asked_to_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processor_module, "MAX_WAIT_SECONDS", 0.01)
    processor = ImageProcessor(MAX_PIXELS, 1)
    await processor._turns.acquire()
    with tempfile.TemporaryFile(buffering=0) as file:
        file.write(picture())
        with pytest.raises(Unavailable) as refused:
            await processor.process(file, "")
    assert refused.value.retry_after > 1


async def test_a_large_compressed_text_beside_the_picture_is_not_read() -> None:
    text = PngImagePlugin.PngInfo()
    text.add_text("Comment", "A" * 30_000_000, zip=True)
    assert (await process(encoded(drawn(), pnginfo=text))).width == 64


async def test_the_process_knows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts without environment, so a decoder that is taken over finds no key in it."""
    monkeypatch.setenv("PLAZA_JWT_SECRET", "do not tell")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    assert (await process(picture())).width == 64
