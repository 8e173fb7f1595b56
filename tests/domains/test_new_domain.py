"""`plaza new domain` writes a package whose own tests pass, and that Plaza runs when it is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from plaza.app import DOMAINS
from plaza.cli import main
from plaza.core.domain_selection import installed_domains
from tests.processes import environment


def test_a_new_domain_passes_its_own_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "domain", "gardens"]) == 0
    assert "pip install --editable ./gardens" in capsys.readouterr().out
    written = [path for path in (tmp_path / "gardens").rglob("*") if path.is_file()]
    assert not [path for path in written if "notes" in path.read_text().lower() or "notes" in path.name]
    lint = ["ruff", "check", "--isolated", "--select", "E,F,UP,B", "--line-length", "120", "gardens"]
    subprocess.run([sys.executable, "-m", *lint], check=True, capture_output=True)
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--disable-plugin-autoload", "gardens"]
    done = subprocess.run(tests, env=environment(tmp_path / "var"), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


def test_a_new_domain_is_found_by_its_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "domain", "gardens"]) == 0
    metadata = tmp_path / "gardens" / "src" / "gardens-0.1.0.dist-info"
    metadata.mkdir()
    project = (tmp_path / "gardens" / "pyproject.toml").read_text()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: gardens\nVersion: 0.1.0\n")
    entry_point = project.partition('[project.entry-points."plaza.domains"]\n')[2].partition("\n")[0].replace('"', "")
    (metadata / "entry_points.txt").write_text(f"[plaza.domains]\n{entry_point}\n")
    monkeypatch.syspath_prepend(str(tmp_path / "gardens" / "src"))
    found = {domain.name: domain for domain in installed_domains(DOMAINS)}["gardens"]
    assert [key.pattern for _, key in found.catalogue] == ["gardens:<username>"]


@pytest.mark.parametrize("name", ["shop", "Polls", "a b", "../x", "class", "here"])
def test_a_name_that_cannot_be_a_domain_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    assert main(["new", "domain", name]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["here"]
