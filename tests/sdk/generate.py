"""Writes the clients that `make sdk` gives: `python -m tests.sdk.generate sdk`.

The folder gets `openapi.json`, `python/` (a package `plaza-client`) and `typescript/` (types for `openapi-fetch`).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from plaza import __version__
from plaza.docgen import write

FOLDER = Path(__file__).parent
NODE_PROGRAMS = FOLDER / "node_modules" / ".bin"


def write_document(folder: Path) -> Path:
    """Write the OpenAPI document; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    document = folder / "openapi.json"
    write(document)
    return document


def write_python_client(folder: Path) -> Path:
    """Write the Python client; returns its folder. What the generator would leave out is an error."""
    target = folder / "python"
    command: list[str | Path] = [
        *(Path(sys.executable).parent / "openapi-python-client", "generate", "--fail-on-warning", "--overwrite"),
        *("--path", write_document(folder), "--config", FOLDER / "python-client.yaml", "--output-path", target),
    ]
    _run(command)
    return target


def write_typescript_client(folder: Path) -> Path:
    """Write the TypeScript types and a `package.json` with the client that uses them; returns their folder."""
    target = folder / "typescript"
    target.mkdir(parents=True, exist_ok=True)
    _run([NODE_PROGRAMS / "openapi-typescript", write_document(folder), "--output", target / "schema.d.ts"])
    versions = json.loads((FOLDER / "package.json").read_text())["dependencies"]
    package = {
        "name": "plaza-client",
        "version": __version__,
        "private": True,
        "type": "module",
        "types": "schema.d.ts",
        "dependencies": {"openapi-fetch": versions["openapi-fetch"]},
    }
    (target / "package.json").write_text(json.dumps(package, indent=2) + "\n")
    return target


def _run(command: list[str | Path]) -> None:
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # the generator formats what it wrote with ruff
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PATH": programs})
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


if __name__ == "__main__":
    target = Path(sys.argv[1])
    shutil.rmtree(target, ignore_errors=True)
    print(f"Python: {write_python_client(target)}   TypeScript: {write_typescript_client(target)}")
