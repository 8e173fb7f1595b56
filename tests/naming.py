"""Class names are unique in `src`, `tests` and `bench`, and a class has at most 15 methods.

`python -m tests.naming` lists the classes of which this is not true. `bench/peers` is exempt: its reference
implementations use the names of what they replace.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("src", "tests", "bench")
EXEMPT = ROOT / "bench" / "peers"
MAX_METHODS = 15


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    """Every class, with the path of its file."""
    for path in sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        if path.is_relative_to(EXEMPT):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                yield str(path.relative_to(ROOT)), node


def duplicate_classes() -> dict[str, list[str]]:
    """Class names defined in more than one place, with the files that define them."""
    places: dict[str, list[str]] = defaultdict(list)
    for path, node in classes():
        places[node.name].append(path)
    return {name: paths for name, paths in sorted(places.items()) if len(paths) > 1}


def large_classes() -> Iterator[str]:
    """Classes to split by noun, with their number of methods."""
    for path, node in classes():
        methods = sum(isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef) for member in node.body)
        if methods > MAX_METHODS:
            yield f"{path}: {node.name} has {methods} methods. Split it by noun."


if __name__ == "__main__":
    found = [f"{name} exists twice: {', '.join(paths)}" for name, paths in duplicate_classes().items()]
    found += large_classes()
    print("\n".join([*found, f"{len(found)} classes to rename or split."]))
    raise SystemExit(bool(found))
