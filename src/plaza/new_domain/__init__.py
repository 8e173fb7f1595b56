"""Writes a package with a new domain. Its source is the domain `notes` in this folder, under another name.

`notes` is real code: the checks of Plaza read it as any other, and a test runs what is written.
"""

from __future__ import annotations

import keyword
import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from plaza.core.errors import OperatorError

_HERE: Final = files("plaza.new_domain")
_NAME: Final = re.compile(r"[a-z][a-z0-9]{1,29}")
_PACKAGE: Final = "plaza.new_domain.notes"


def write_domain(name: str, folder: Path, taken: set[str]) -> list[Path]:
    """Write the package of a new domain into a folder that does not exist yet. Returns the files."""
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise OperatorError(f"{name} cannot be the name of a domain. Use 2 to 30 letters and digits in lower case.")
    if name in taken:
        raise OperatorError(f"There is a domain {name} already. Choose another name.")
    if folder.exists():
        raise OperatorError(f"{folder} exists already. Choose another name, or remove it.")
    source = {"pyproject.toml": _HERE / "project.toml", f"tests/test_{name}.py": _HERE / "notes_tests.py"}
    source |= {f"src/{name}/{path}": file for path, file in _files(_HERE / "notes", name)}
    for path, file in source.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(_renamed(file.read_text(), name))
    return [folder / path for path in source]


def _files(folder: Traversable, name: str) -> list[tuple[str, Traversable]]:
    code = [(file.name, file) for file in folder.iterdir() if file.name.endswith(".py")]
    return [*sorted(code, key=lambda found: found[0]), (f"lua/{name}.lua", folder / "lua" / "notes.lua")]


def _renamed(text: str, name: str) -> str:
    text = text.replace(_PACKAGE, name)
    text = text.replace("notes", name).replace("Notes", name.capitalize()).replace("NOTES", name.upper())
    return _with_own_imports_last(text, f"from {name}.")


def _with_own_imports_last(text: str, start: str) -> str:
    """Put the imports of the new package after those of Plaza, which is another package there."""
    lines = text.splitlines()
    own = [line for line in lines if line.startswith(start)]
    others = [line for line in lines if not line.startswith(start)]
    if not own:
        return text
    last = max((n for n, line in enumerate(others) if line.startswith(("from ", "import "))), default=0)
    return "\n".join([*others[: last + 1], "", *own, *others[last + 1 :], ""])
