"""`python -m bench` runs every benchmark, `python -m bench connection http` only these.

A benchmark is a module of this package with a `main`; the other modules are helpers.
"""

from __future__ import annotations

import pkgutil
import sys
from importlib import import_module

import bench


def main(names: list[str]) -> None:
    known = [module.name for module in pkgutil.iter_modules(bench.__path__) if module.name != "__main__"]
    for name in names or known:
        if name not in known:
            raise SystemExit(f"Unknown benchmark {name!r}. Choose from {', '.join(known)}.")
        run = getattr(import_module(f"bench.{name}"), "main", None)
        if run is not None:
            run()


if __name__ == "__main__":
    main(sys.argv[1:])
