"""Documentation agrees with the code: settings, commands, routes, options, keys, links and deployment files."""

from __future__ import annotations

import contextlib
import re
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest

from bench.capacity import communities
from plaza import docgen
from plaza.app import catalogues
from plaza.cli import parser
from plaza.core.http.routes import Options
from plaza.core.settings import Settings, variable
from plaza.core.validation_messages import describe_violation
from plaza.http_application import route_groups

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
WRITTEN = sorted(path for path in [*ROOT.glob("*.md"), *DOCS.rglob("*.md")] if path.name not in docgen.pages())


@pytest.mark.parametrize("name", sorted(docgen.pages()))
def test_a_generated_page_is_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text() == docgen.pages()[name], "run: make docs"


def test_every_setting_is_documented() -> None:
    page = (DOCS / "settings.md").read_text()
    for field in fields(Settings):
        assert f"| `{variable(field.name)}` |" in page
        assert field.metadata["help"] in page


def test_every_command_is_documented_with_an_example() -> None:
    page = (DOCS / "commands.md").read_text()
    commands = dict(docgen.all_commands("plaza", parser()))
    assert {"plaza serve", "plaza worker", "plaza keys", "plaza token", "plaza users role"} <= set(commands)
    for name in commands:
        section = page.partition(f"## `{name}")[2].partition("## ")[0]
        assert re.search(rf"```sh\n.*{name}.*\n```", section), name


def test_every_route_is_documented() -> None:
    page = (DOCS / "routes.md").read_text()
    for group in route_groups():
        for route in group.routes:
            assert f"| `{route.method} {route.template}` |" in page


def test_every_option_of_a_route_is_documented() -> None:
    page = (DOCS / "http.md").read_text()
    assert {option for option in Options.__annotations__ if f"| `{option}` |" not in page} == set()


def test_every_pattern_has_a_message_in_words() -> None:
    """A validation error explains the rule and shows no regular expression."""
    patterns: set[str] = set()
    for route in (route for group in route_groups() for route in group.routes):
        for hint in get_type_hints(route.handler, include_extras=True).values():
            with contextlib.suppress(TypeError):  # a service
                patterns |= set(_patterns(msgspec.json.schema(hint)))
    assert len(patterns) > 5
    assert {
        pattern for pattern in patterns if "regex" in describe_violation(f"Expected `str` matching regex {pattern!r}")
    } == set()


def _patterns(schema: Any) -> Iterator[str]:
    parts = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    if isinstance(schema, dict) and isinstance(schema.get("pattern"), str):
        yield schema["pattern"]
    for part in parts:
        yield from _patterns(part)


def test_every_key_is_documented() -> None:
    page = (DOCS / "keys.md").read_text()
    for catalogue in catalogues():
        for _, key in catalogue:
            assert f"### `{key.pattern}`" in page


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_of_a_page_exist(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), target


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: str(path.relative_to(ROOT)))
def test_settings_and_make_targets_in_prose_exist(path: Path) -> None:
    text = path.read_text()
    settings = {variable(field.name) for field in fields(Settings)}
    assert set(re.findall(r"\bPLAZA_[A-Z_]+\b", text)) <= settings
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z]+)`", text)) <= targets


def test_code_with_the_name_of_a_file_is_in_that_file() -> None:
    block = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
    found = [match for page in WRITTEN for match in block.finditer(page.read_text())]
    assert len(found) > 10
    for file, code in (match.groups() for match in found):
        assert code in (ROOT / file).read_text(), (file, code)


def test_the_list_of_decisions_is_complete() -> None:
    index = (DOCS / "decisions" / "index.md").read_text()
    for path in sorted((DOCS / "decisions").glob("0*.md")):
        title = re.sub(r"# (\d+\. )?", "", path.read_text().splitlines()[0])
        assert f"- [{path.name[:4]}]({path.name}): {title}\n" in index


def test_the_deployment_files_agree_with_the_code() -> None:
    """They are not tested otherwise, so at least their names must exist."""
    dockerfile = (ROOT / "Dockerfile").read_text()
    unit = (DOCS / "plaza.service").read_text()
    compose = (ROOT / "compose.yaml").read_text()
    settings = {variable(field.name) for field in fields(Settings)}
    assert set(re.findall(r"\bPLAZA_[A-Z_]+\b", dockerfile + unit + compose)) <= settings
    python = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert f"FROM python:{python.removeprefix('>=')}" in dockerfile
    assert unit in (DOCS / "operations.md").read_text(), "docs/operations.md shows another unit than the file"


def test_the_memory_of_large_communities_follows_from_the_memory_page() -> None:
    expected = [row for row in communities(0, 0, 0).splitlines() if row.startswith(("| keys in", "| primaries of"))]
    assert len(expected) == 2
    assert set(expected) <= set((DOCS / "scaling.md").read_text().splitlines())


def test_every_test_that_the_security_pages_name_exists() -> None:
    tested = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        if "node_modules" not in path.parts
        for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    named = set(re.findall(r"`(test_\w+)`", (DOCS / "asvs.md").read_text()))
    assert len(named) > 100
    assert not named - tested


def test_every_file_that_is_named_exists() -> None:
    """A module that is renamed leaves no page, docstring or comment behind that names the old one."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    names = {Path(name).name for name in listed}
    named = re.compile(r"`(?:[\w./-]*/)?([\w-]+\.(?:py|lua|js|html|css))`")
    missing = [
        f"{name}: {found}"
        for name in listed
        if name.endswith((".md", ".py", ".lua")) and name != "mkdocs_hooks.py"  # which names a page of the built site
        for found in named.findall((ROOT / name).read_text())
        if found not in names
    ]
    assert missing == []
