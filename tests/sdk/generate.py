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
    document = json.loads(write_document(folder).read_text())
    for operation in (operation for methods in document["paths"].values() for operation in methods.values()):
        # Where credentials are optional, the generator would ask for them.
        if {} in operation.get("security", ()):
            del operation["security"]
    source = folder / "openapi-python.json"
    source.write_text(json.dumps(document))
    command: list[str | Path] = [
        *(Path(sys.executable).parent / "openapi-python-client", "generate", "--fail-on-warning", "--overwrite"),
        *("--path", source, "--config", FOLDER / "python-client.yaml", "--output-path", target),
    ]
    _run(command)
    source.unlink()
    return target


def write_typescript_client(folder: Path) -> Path:
    """Write the TypeScript types and a `package.json` with the client that uses them; returns their folder."""
    target = folder / "typescript"
    target.mkdir(parents=True, exist_ok=True)
    _run([NODE_PROGRAMS / "openapi-typescript", write_document(folder), "--output", target / "schema.ts"])
    versions = json.loads((FOLDER / "package.json").read_text())["dependencies"]
    package = {
        "name": "plaza-client",
        "version": __version__,
        "private": True,
        "type": "module",
        "types": "schema.ts",
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
