"""Pictures: CPU and peak memory per 12-megapixel picture for libvips and pillow, and the cost of sending a small file.

Both libraries do the same work, each in a fresh process. A small file may cost at most 1.5 times a JSON response of the
same size.

    python -m bench media
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import httpx
import psutil
from PIL import Image

from bench.load import measure, request
from plaza.media.processor import BASE_MEMORY_BYTES, CPU_SECONDS, MEMORY_BYTES_PER_PIXEL
from tests.media.images import drawn, encoded
from tests.processes import serving

WIDTH, HEIGHT, MAX_PIXELS = 4_000, 3_000, 40_000_000
PROCESSES, ROUNDS, REQUESTS = 3, 5, 6_400
MAX_TIMES_JSON = 1.5
POSTS = 40
FORMATS = {
    "JPEG": {"quality": 92},
    "PNG": {"compress_level": 1},
    "WEBP": {"quality": 90, "method": 1},
    "AVIF": {"speed": 9},
}


def photo(width: int, height: int, format: str = "JPEG", **options: int) -> bytes:
    """A picture with the detail of a photo: soft colours and some noise."""
    noise = Image.effect_noise((width // 2, height // 2), 40).resize((width, height)).convert("RGB")
    return encoded(Image.blend(drawn(width, height), noise, 0.15), format, **options)


def process_costs() -> None:
    """Print what a process of each library costs for a picture in each format."""
    limits = {
        "filename": "",
        "max_pixels": MAX_PIXELS,
        "memory_bytes": BASE_MEMORY_BYTES + MEMORY_BYTES_PER_PIXEL * MAX_PIXELS,
        "cpu_seconds": CPU_SECONDS,
    }
    vips = ["-I", "-m", "plaza.media.image_process", json.dumps(limits)]
    pillow = ["-m", "bench.peers.pillow_process"]
    print(f"A picture of {WIDTH} × {HEIGHT} pixels, best of {PROCESSES} processes each")
    print(f"  {'':8}{'':>10}{'libvips':>18}{'pillow':>18}")
    for format, options in FORMATS.items():
        upload = photo(WIDTH, HEIGHT, format, **options)
        rounds = [(_run(vips, upload), _run(pillow, upload)) for _ in range(PROCESSES)]
        print(f"  {format:8}{len(upload) / 1e6:7.1f} MB", end="")
        for measured in zip(*rounds, strict=True):
            seconds, megabytes = (min(values) for values in zip(*measured, strict=True))
            print(f"{seconds:9.2f} s{megabytes:4.0f} MB", end="")
        print(flush=True)
    print()


# A small process between: a child's peak memory includes that of the process that started it.
_MEASURE = """
import os, sys
pid = os.posix_spawn(sys.executable, [sys.executable, *sys.argv[1:]], os.environ)
_, status, usage = os.wait4(pid, 0)
print(status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, file=sys.stderr)
"""


def _run(arguments: Sequence[str], upload: bytes) -> tuple[float, float]:
    """Run a process on a picture; return its CPU in seconds and its peak memory in MB."""
    with tempfile.TemporaryFile() as file:
        file.write(upload)
        file.seek(0)
        command = [sys.executable, "-S", "-c", _MEASURE, *arguments]
        done = subprocess.run(command, stdin=file, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True)
    status, seconds, megabytes = done.stderr.split()[-3:]
    assert int(status) == 0, done.stderr.decode()
    return float(seconds), float(megabytes)


def sending_costs() -> None:
    """Print what a small picture costs the server, compared with a list of posts of the same size."""
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder) / "var", PLAZA_RATE_LIMITS="off") as server:
        port, process = int(server.url.rpartition(":")[2]), psutil.Process(server.process.pid)
        with httpx.Client(base_url=server.url, timeout=30) as http:
            picture, posts = _fill(http)
            sizes = {path: len(http.get(path).content) for path in (picture, posts)}
        paths = {"picture": request("GET", picture, b""), "JSON": request("GET", posts, b"")}
        rounds = [
            {name: measure(port, process, each, b"HTTP/1.1 200", REQUESTS).cpu_us for name, each in paths.items()}
            for _ in range(ROUNDS + 1)
        ]
        best = {name: min(costs[name] for costs in rounds[1:]) for name in paths}  # the first round warms up
    print(f"Small responses, {REQUESTS} requests on 64 connections, best of {ROUNDS}")
    for (name, cost), size in zip(best.items(), sizes.values(), strict=True):
        print(f"  {name:12}{size:10,} bytes{cost:10.0f} µs of CPU")
    times = best["picture"] / best["JSON"]
    print(f"  picture / JSON: {times:.2f}× (at most {MAX_TIMES_JSON})")
    assert times <= MAX_TIMES_JSON, "sending a picture costs too much"


def _fill(http: httpx.Client) -> tuple[str, str]:
    """Return the path of a picture, and that of a list of posts with about as many bytes."""
    account = http.post("/auth/register", json={"username": "ana", "password": "correct horse battery"}).json()
    http.headers["authorization"] = f"Bearer {account['access_token']}"
    uploaded = http.post("/media", files={"file": ("a.jpg", io.BytesIO(photo(640, 480)))}).json()
    http.put("/users/me/avatar", json={"media": uploaded["id"]}).raise_for_status()
    for number in range(POSTS):
        http.post("/posts", json={"content": f"Post {number} " + "of the garden. " * 10}).raise_for_status()
    del http.headers["authorization"]
    picture = f"/media/{uploaded['id']}/small"
    size = len(http.get(picture).content)
    lists = [f"/feed/explore?limit={limit}" for limit in range(1, POSTS)]
    return picture, min(lists, key=lambda path: abs(len(http.get(path).content) - size))


def main() -> None:
    process_costs()
    sending_costs()


if __name__ == "__main__":
    main()
