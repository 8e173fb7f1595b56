"""Generators accept the OpenAPI document, and leave nothing out."""

from __future__ import annotations

from pathlib import Path

from plaza.core.http.openapi.operations import operation_id
from tests.openapi.test_operation_ids import ROUTES
from tests.sdk import generate


def test_the_python_client_has_every_operation(tmp_path: Path) -> None:
    folder = generate.write_python_client(tmp_path)
    functions = {path.stem for path in (folder / "plaza_client" / "api").rglob("*.py")} - {"__init__"}
    assert functions == {route.handler.__name__ for route in ROUTES}


def test_the_typescript_client_has_every_operation(tmp_path: Path) -> None:
    types = (generate.write_typescript_client(tmp_path) / "schema.d.ts").read_text()
    missing = [name for name in map(operation_id, ROUTES) if f"\n    {name}: {{" not in types]
    assert not missing
