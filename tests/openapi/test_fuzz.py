"""Schemathesis finds nothing in a few requests to every operation. `make fuzz` sends many more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.openapi.fuzz import CALLERS, Caller, fuzzing
from tests.servers import Server

# The same requests in every run, one for each operation.
BOUNDED = ("--generation-deterministic", "--max-examples", "1", "--phases", "fuzzing")


@pytest.mark.parametrize("caller", CALLERS)
async def test_responses_are_as_documented(caller: Caller, server: Server, tmp_path: Path) -> None:
    async with fuzzing(server, tmp_path) as fuzzer:
        result = await fuzzer.run(caller, *BOUNDED)
    assert not result.findings, result.findings
    assert result.cases > 100
