"""The Python client, generated as `make sdk` does."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.openapi.test_operation_ids import ROUTES
from tests.sdk import generate, samples
from tests.sdk.conftest import PlazaForClients

TOUR = Path(__file__).parent / "python_tour.py"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the client."""
    return generate.write_python_client(tmp_path_factory.mktemp("sdk"))


def test_the_client_has_every_operation(client: Path) -> None:
    functions = {path.stem for path in (client / "plaza_client" / "api").rglob("*.py")} - {"__init__"}
    assert functions == {route.handler.__name__ for route in ROUTES}


async def test_a_tour_of_forty_operations_works(client: Path, plaza: PlazaForClients) -> None:
    output = await plaza.run(sys.executable, TOUR, plaza.url, plaza.api_key, PYTHONPATH=str(client))
    assert len(set(output.split())) >= 40


async def test_the_samples_of_the_page_work(client: Path, plaza: PlazaForClients, tmp_path: Path) -> None:
    await plaza.run_transcript(tmp_path)
    (tmp_path / "samples.py").write_text(samples.program("python", plaza.url))
    output = await plaza.run(sys.executable, tmp_path / "samples.py", PYTHONPATH=str(client))
    assert output == "1 viewers\n"
