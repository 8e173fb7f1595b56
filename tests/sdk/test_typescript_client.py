"""The TypeScript client, generated as `make sdk` does and compiled by `tsc --strict`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from plaza.core.http.openapi.operations import operation_id
from tests.openapi.test_operation_ids import ROUTES
from tests.sdk import generate, samples
from tests.sdk.conftest import PlazaForClients

FOLDER = Path(__file__).parent


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the client, with the tour and the samples of the page compiled into `out/`."""
    client = generate.write_typescript_client(tmp_path_factory.mktemp("sdk"))
    (client / "node_modules").symlink_to(FOLDER / "node_modules")
    for name in ("tsconfig.json", "typescript_tour.ts"):
        shutil.copy(FOLDER / name, client)
    url = 'process.argv[2] ?? ""'
    (client / "samples.ts").write_text(samples.program("typescript", url).replace(f'"{url}"', url))
    compiled = subprocess.run([generate.NODE_PROGRAMS / "tsc"], cwd=client, capture_output=True, text=True)
    assert compiled.returncode == 0, compiled.stdout
    return client


def test_the_client_has_every_operation(client: Path) -> None:
    types = (client / "schema.ts").read_text()
    missing = [name for name in map(operation_id, ROUTES) if f"\n    {name}: {{" not in types]
    assert not missing


async def test_a_tour_of_forty_operations_works(client: Path, plaza: PlazaForClients) -> None:
    output = await plaza.run("node", client / "out" / "typescript_tour.js", plaza.url, plaza.api_key)
    assert len(set(output.split())) >= 40


async def test_the_samples_of_the_page_work(client: Path, plaza: PlazaForClients, tmp_path: Path) -> None:
    await plaza.run_transcript(tmp_path)
    output = await plaza.run("node", client / "out" / "samples.js", plaza.url)
    assert output.splitlines() == ["ana", "Post 2 #travel", "Post 1 #travel", "Post 0 #travel", "1 viewers"]
