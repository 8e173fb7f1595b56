"""Runs `image_process.py` for each upload: one process per picture, a few at a time, with limits on time and memory."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from typing import IO, Final

import msgspec
import structlog
from msgspec import Struct

from plaza.core import metrics
from plaza.core.errors import Unavailable
from plaza.core.extras import is_installed
from plaza.core.process.child import signal_child
from plaza.media.model import BadImage, UploadsOff

log = structlog.get_logger("plaza.media")

# The largest accepted picture takes about 3 s of CPU; an animation of the same number of pixels 10 s.
CPU_SECONDS: Final = 20
# On a busy machine a process gets a fraction of a CPU.
WALL_SECONDS: Final = 60.0
# Python and libvips need 200 MB of address space, the decoder of AVIF 14 bytes per pixel.
BASE_MEMORY_BYTES, MEMORY_BYTES_PER_PIXEL = 256 * 1024 * 1024, 16
# Six files of the largest accepted picture have 3 MB, those of an animation 20 MB.
MAX_RESULT_BYTES: Final = 64 * 1024 * 1024
# How long an upload waits for its turn, before the client is asked to come back.
MAX_WAIT_SECONDS: Final = 30.0


class ImageFile(msgspec.Struct, frozen=True):
    """One encoded file: a variant in a format."""

    variant: str
    format: str
    bytes: int


class _Description(msgspec.Struct, frozen=True):
    """The first line of a process's result."""

    width: int = 0
    height: int = 0
    blurhash: str = ""
    files: list[ImageFile] = []
    refused: str = ""


class ProcessedImage(Struct, frozen=True):
    """A picture, ready to be stored: its size as it is shown, and its files with their contents."""

    width: int
    height: int
    blurhash: str
    files: list[tuple[ImageFile, bytes]]


class ImageProcessor:
    """Decodes uploads in separate processes."""

    def __init__(self, max_pixels: int, processes: int) -> None:
        self._max_pixels = max_pixels
        self._memory_bytes = BASE_MEMORY_BYTES + MEMORY_BYTES_PER_PIXEL * max_pixels
        self._turns = asyncio.Semaphore(processes)

    async def process(self, upload: IO[bytes], filename: str) -> ProcessedImage:
        """Return the picture in all variants. Raises `BadImage` if it is refused, `Unavailable` if many are waiting."""
        if not is_installed("media"):
            raise UploadsOff("This server has nothing that decodes pictures. Its operator can install plaza[media].")
        if not os.fstat(upload.fileno()).st_size:
            raise _refused("It is empty. Choose another file.")
        try:
            async with asyncio.timeout(MAX_WAIT_SECONDS):
                await self._turns.acquire()
        except TimeoutError:
            raise Unavailable("Many pictures are being processed. Try again later.", retry_after=10) from None
        try:
            with metrics.MEDIA_PROCESSING.time():
                return await self._run(upload, filename)
        finally:
            self._turns.release()

    async def _run(self, upload: IO[bytes], filename: str) -> ProcessedImage:
        arguments = {
            "filename": filename,
            "max_pixels": self._max_pixels,
            "memory_bytes": self._memory_bytes,
            "cpu_seconds": CPU_SECONDS,
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-m", "plaza.media.image_process", json.dumps(arguments),
            stdin=upload, stdout=PIPE, stderr=DEVNULL, env={}, cwd="/", start_new_session=True,
        )  # fmt: skip
        try:
            async with asyncio.timeout(WALL_SECONDS):
                return await read_result(process)
        except TimeoutError:
            raise _refused("It takes too long to decode.") from None
        finally:
            signal_child(process, signal.SIGKILL)
            await process.wait()


async def read_result(process: Process) -> ProcessedImage:
    """Read one result of a process that runs `image_process.py`, or raise `BadImage`."""
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line.endswith(b"\n"):
        raise _refused(_cause_of_death(await process.wait()))
    found = msgspec.json.decode(line, type=_Description)
    if found.refused:
        raise _refused(found.refused)
    if sum(file.bytes for file in found.files) > MAX_RESULT_BYTES:
        raise _refused("It is too large.")
    try:
        files = [(file, await process.stdout.readexactly(file.bytes)) for file in found.files]
    except asyncio.IncompleteReadError:
        raise _refused(_cause_of_death(await process.wait())) from None
    return ProcessedImage(found.width, found.height, found.blurhash, files)


def _cause_of_death(status: int) -> str:
    log.warning("image_process_died", status=status)
    if status in (-signal.SIGXCPU, -signal.SIGKILL):
        return "It takes too long to decode."
    return "It needs too much memory to decode, or is damaged."


def _refused(reason: str) -> BadImage:
    return BadImage(reason, field="file")
