"""Finds terms that docs/glossary.md bans. `python -m tests.wording [PATH …]` lists their lines."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
CHECKED = ("*.py", "*.lua", "*.html", "*.js", "*.css", "*.md", "*.toml", "Makefile", "Dockerfile")
# The glossary names what it bans, and `topics/` is what demo users write.
EXEMPT = ("docs/glossary.md", "tests/wording.py", "src/plaza/demo/topics/")


def banned_terms() -> list[str]:
    """The terms listed under "Banned terms" in the glossary."""
    page = (ROOT / "docs" / "glossary.md").read_text()
    section = page.partition("## Banned terms")[2].partition("\n## ")[0]
    return re.findall(r"^\| `([^`]+)`", section, re.MULTILINE)


def findings(paths: Sequence[str] = ()) -> Iterator[str]:
    """Every line with a banned term, as `path:line: term: text`."""
    pattern = re.compile(rf"(?<![\w-])(?:{'|'.join(banned_terms())})(?![\w-])", re.IGNORECASE)
    listed = subprocess.run(["git", "ls-files", *CHECKED], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.split():
        if name.startswith(EXEMPT) or (paths and not name.startswith(tuple(paths))) or not (ROOT / name).is_file():
            continue
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1):
            if found := pattern.search(line):
                yield f"{name}:{number}: {found[0]}: {line.strip()[:120]}"


if __name__ == "__main__":
    found = list(findings(sys.argv[1:]))
    print("\n".join([*found, f"{len(found)} lines use banned terms."]))
    raise SystemExit(bool(found))
