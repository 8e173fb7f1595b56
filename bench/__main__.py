"""`python -m bench` measures every path beside the peers; `python -m bench NAME [ARGUMENT …]` runs another benchmark.

A benchmark is a module of this package with a `main`; the other modules are helpers.
"""

from __future__ import annotations

import inspect
import pkgutil
import sys
from importlib import import_module

import bench

DEFAULT = "performance"


def main(arguments: list[str]) -> None:
    name, *rest = arguments if arguments and not arguments[0].startswith("-") else [DEFAULT, *arguments]
    known = [module.name for module in pkgutil.iter_modules(bench.__path__) if module.name != "__main__"]
    run = getattr(import_module(f"bench.{name}"), "main", None) if name in known else None
    if run is None:
        known = [each for each in known if hasattr(import_module(f"bench.{each}"), "main")]
        raise SystemExit(f"Unknown benchmark {name!r}. Choose from {', '.join(known)}.")
    sys.exit(run(rest) if inspect.signature(run).parameters else run())


if __name__ == "__main__":
    main(sys.argv[1:])
