"""An environment with the wheel of Plaza and what it declares to need, and nothing else that is installed here.

The packages are links to those of the environment that runs the tests, so nothing is downloaded. What Plaza imports and
does not declare is missing.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]


def build_wheel(folder: Path) -> Path:
    """Build the wheel from the files that git does not ignore; returns its path."""
    source = folder / "source"
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "src", "pyproject.toml"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    for name in listed.stdout.decode().splitlines():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder, source)
    (wheel,) = folder.glob("plaza-*.whl")
    return wheel


class CleanEnvironment:
    """A virtual environment with the wheel and the packages that it needs with these extras."""

    def __init__(self, folder: Path, wheel: Path, *extras: str) -> None:
        venv.create(folder, with_pip=False)
        self.python = folder / "bin" / "python"
        (self.packages,) = folder.glob("lib/python*/site-packages")
        pip("--python", self.python, "install", "--no-deps", "--no-index", wheel)
        plaza = next(found for found in Distribution.discover(name="plaza", path=[str(self.packages)]))
        for needed in required(plaza, extras):
            if needed.name != "plaza":  # an extra may name others: plaza[all]
                self._link(needed)

    def _link(self, package: Distribution) -> None:
        for name in {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
            link = self.packages / name
            if not link.exists():
                link.symlink_to(str(package.locate_file(name)))

    def run(self, *arguments: str | Path) -> str:
        """The output of its Python, which must succeed."""
        done = subprocess.run([self.python, *arguments], capture_output=True, text=True, cwd=self.packages)
        assert done.returncode == 0, done.stderr
        return done.stdout


def required(package: Distribution, extras: Iterable[str] = ()) -> Iterator[Distribution]:
    """The packages that one needs, and those that they need."""
    found: set[tuple[str, frozenset[str]]] = set()
    pending = [(package, frozenset(extras))]
    while pending:
        package, chosen = pending.pop()
        for requirement in map(Requirement, package.requires or ()):
            wanted = any(
                requirement.marker is None or requirement.marker.evaluate({"extra": extra}) for extra in (*chosen, "")
            )
            key = (requirement.name.lower(), frozenset(requirement.extras))
            if wanted and key not in found:
                found.add(key)
                pending.append((distribution(requirement.name), frozenset(requirement.extras)))
                yield pending[-1][0]


def pip(*arguments: str | Path) -> None:
    done = subprocess.run([sys.executable, "-m", "pip", "--quiet", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
