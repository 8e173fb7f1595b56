"""Sends generated requests to a running Plaza as anonymous, user and admin, and checks each response with schemathesis.

    python -m tests.openapi.fuzz --cases 20000    # `make fuzz`

Every response must be one that the OpenAPI document describes: its status, media type, headers and body. Requests that
the schemas allow must be accepted, others refused, and nothing may be a 5xx.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx
import structlog

from plaza.app import Plaza, running
from plaza.core.settings import Settings
from plaza.docgen import openapi_document
from tests.http_servers import serving
from tests.openapi.sample_objects import SampleObjects
from tests.servers import Server, running_server

Caller = Literal["anonymous", "user", "admin"]
CALLERS: tuple[Caller, ...] = ("anonymous", "user", "admin")
ROOT = Path(__file__).parents[2]
# Phases of schemathesis: the document's examples, the limits of every field, random requests.
LONG = "examples,coverage,fuzzing"
SECRET = "s" * 32
KEY = "k" * 32


@dataclass
class FuzzResult:
    """How many requests were sent, and what schemathesis found."""

    cases: int
    findings: str  # empty if there are none


class Fuzzer:
    """Runs schemathesis against a Plaza, with objects that its requests can name."""

    def __init__(self, plaza: Plaza, url: str, folder: Path) -> None:
        self.plaza = plaza
        self.url = url
        self.folder = folder

    async def run(self, caller: Caller, *options: str) -> FuzzResult:
        """Run schemathesis as a caller."""
        given = {"caller": caller, "jwt_secret": SECRET, "api_key": KEY, **await self._create_objects()}
        command = [
            *(str(Path(sys.executable).with_name("schemathesis")), "--config-file", "tests/openapi/schemathesis.toml"),
            *("run", f"{self.url}/openapi.json", "--no-color", "--exclude-path-regex", "stream$|^/events$", *options),
        ]
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=ROOT,
            env={**os.environ, "PLAZA_FUZZ": json.dumps(given), "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output = (await process.communicate())[0].decode()
        (self.folder / f"{caller}.txt").write_text(output)
        cases = re.search(r"(\d+) generated", output)
        assert cases, output
        return FuzzResult(int(cases[1]), output if process.returncode else "")

    async def _create_objects(self) -> dict[str, Any]:
        """A user, and for each path parameter the id of an object of the user, except passkeys."""
        async with httpx.AsyncClient(base_url=self.url) as http:
            samples = SampleObjects(self.plaza, http, "https://example.org/hook")
            await samples.register()
            ids = {
                f"{path} {parameter['name']}": await samples.replace(parameter["example"])
                for path, methods in openapi_document()["paths"].items()
                for operation in methods.values()
                for parameter in operation.get("parameters", ())
                if parameter["in"] == "path" and "example" in parameter and "accounts" not in operation["tags"]
            }
        return {"username": samples.ben, "ids": ids}


@asynccontextmanager
async def fuzzing(server: Server, folder: Path) -> AsyncIterator[Fuzzer]:
    """A fuzzer of a Plaza on this Valkey, which is a server of its own."""
    settings = Settings(data_dir=folder, valkey_url=server.url, jwt_secret=SECRET, api_key=KEY, rate_limits=False)
    async with running(settings) as plaza, serving(plaza.app) as url:
        yield Fuzzer(plaza, url, folder)


async def fuzz(cases: int, callers: Sequence[Caller], folder: Path) -> bool:
    """Send so many requests, in equal parts as each caller; returns whether there are findings."""
    operations = sum(len(methods) for methods in openapi_document()["paths"].values())
    # As many again, at least, come from the limits of fields.
    per_operation = max(1, cases // len(callers) // operations // 2)
    total, found = 0, False
    with running_server() as server:
        async with fuzzing(server, folder) as fuzzer:
            for caller in callers:
                result = await fuzzer.run(caller, "--max-examples", str(per_operation), "--phases", LONG)
                total, found = total + result.cases, found or bool(result.findings)
                print(result.findings or f"{caller}: nothing found in {result.cases:,} cases", flush=True)
    print(f"{total:,} cases")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--cases", type=int, default=20_000, help="how many requests to send, at least")
    parser.add_argument("--callers", nargs="+", choices=CALLERS, default=CALLERS, help="the callers; all by default")
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))  # no line for each request
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(asyncio.run(fuzz(arguments.cases, arguments.callers, Path(folder))))
