"""Class names are unique in `src`, `tests` and `bench`: `python -m tests.naming` lists the ones that are not.

`bench/peers` is exempt: its reference implementations use the names of what they replace.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("src", "tests", "bench")
EXEMPT = ROOT / "bench" / "peers"


def duplicate_classes() -> dict[str, list[str]]:
    """Class names defined in more than one place, with the files that define them."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        if path.is_relative_to(EXEMPT):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(ROOT)))
    return {name: paths for name, paths in sorted(places.items()) if len(paths) > 1}


if __name__ == "__main__":
    found = duplicate_classes()
    print("\n".join([*(f"{name}: {', '.join(paths)}" for name, paths in found.items()), f"{len(found)} duplicates."]))
    raise SystemExit(bool(found))
