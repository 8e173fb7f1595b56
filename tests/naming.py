"""Class names are unique in `src`: `python -m tests.naming` lists the ones that exist more than once."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"


def duplicate_classes() -> dict[str, list[str]]:
    """Class names defined in more than one place, with the files that define them."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(SOURCE)))
    return {name: paths for name, paths in sorted(places.items()) if len(paths) > 1}


if __name__ == "__main__":
    found = duplicate_classes()
    print("\n".join([*(f"{name}: {', '.join(paths)}" for name, paths in found.items()), f"{len(found)} duplicates."]))
    raise SystemExit(bool(found))
