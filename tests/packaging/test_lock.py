"""requirements.lock: what Plaza needs to run, with hashes."""

from __future__ import annotations

import re
from importlib.metadata import distribution

from tests.packaging.clean_environment import ROOT, required


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned(file: str) -> dict[str, str]:
    found = re.findall(r"^([\w.-]+)==([^\s\\]+)", (ROOT / file).read_text(), re.MULTILINE)
    return {normalized(name): version for name, version in found}


def lock() -> str:
    return (ROOT / "requirements.lock").read_text()


def test_the_lock_has_what_plaza_needs_in_the_tested_versions() -> None:
    needed = {normalized(package.name) for package in required(distribution("plaza"), ["all"])} - {"plaza"}
    versions = pinned("constraints.txt")
    expected = {name: versions[name] for name in needed}
    locked = pinned("requirements.lock")
    assert expected.items() <= locked.items(), "run: make lock"
    others = [name for name in locked.keys() - needed if not re.search(rf"^{name}==\S+ ; ", lock(), re.MULTILINE)]
    assert not others, "run: make lock (only what other systems need may be there too)"


def test_every_package_of_the_lock_has_hashes() -> None:
    entries = re.split(r"^(?=\S)", lock(), flags=re.MULTILINE)[1:]
    assert entries
    assert [entry.split()[0] for entry in entries if not re.search(r"--hash=sha256:[0-9a-f]{64}", entry)] == []
