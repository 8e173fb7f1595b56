"""Finds the terms of `banned_terms.toml`. `python -m tests.wording [PATH …]` lists their lines, and what to write."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
CHECKED = ("*.py", "*.lua", "*.html", "*.js", "*.css", "*.md", "*.toml", "Makefile", "Dockerfile")
# `topics/` is what demo users write.
EXEMPT = ("tests/banned_terms.toml", "src/plaza/demo/topics/")


def banned_terms() -> dict[str, str]:
    """The banned terms, each with what to write instead."""
    return tomllib.loads((ROOT / "tests" / "banned_terms.toml").read_text())


def findings(paths: Sequence[str] = ()) -> Iterator[str]:
    """Every line with a banned term, as `path:line: term → replacement: text`."""
    terms = banned_terms()
    pattern = re.compile(rf"(?<![\w-])(?:{'|'.join(terms)})(?![\w-])", re.IGNORECASE)
    listed = subprocess.run(["git", "ls-files", *CHECKED], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.split():
        if name.startswith(EXEMPT) or (paths and not name.startswith(tuple(paths))) or not (ROOT / name).is_file():
            continue
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1):
            if found := pattern.search(line):
                yield f"{name}:{number}: {found[0]} → {terms[found[0].lower()]}: {line.strip()[:120]}"


if __name__ == "__main__":
    found = list(findings(sys.argv[1:]))
    print("\n".join([*found, f"{len(found)} lines use banned terms."]))
    raise SystemExit(bool(found))
