"""A real S3 server on loopback: moto's, in a process of its own."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import httpx

_PROGRAM = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test secret"}


@dataclass(frozen=True)
class S3Server:
    """The server's address."""

    url: str

    def create_bucket(self) -> str:
        """Create an empty bucket, and return its address for `PLAZA_MEDIA_URL`."""
        name = f"plaza-{uuid.uuid4().hex}"
        httpx.put(f"{self.url}/{name}", verify=False).raise_for_status()
        return f"s3://{name}/pictures?endpoint={self.url}&region=us-east-1"


@contextlib.contextmanager
def running_s3() -> Iterator[S3Server]:
    """Start the server; it ends with its standard input."""
    command = [sys.executable, "-c", _PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield S3Server(f"http://127.0.0.1:{int(process.stdout.readline())}")
        finally:
            process.stdin.close()
            process.wait(10)
