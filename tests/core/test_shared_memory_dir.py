"""What processes count together is in memory, and goes with them however they end."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from plaza.core.process import shared_memory_dir
from plaza.core.process.shared_memory_dir import MemoryFolder


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "memory"
    place.mkdir()
    monkeypatch.setattr(shared_memory_dir, "PLACE", place)
    return place


def test_a_folder_is_its_owners_alone_and_goes_with_it(place: Path, tmp_path: Path) -> None:
    first, second = MemoryFolder(tmp_path / "disk"), MemoryFolder(tmp_path / "disk")
    assert {first.path, second.path} == set(place.iterdir())
    assert stat.S_IMODE(first.path.stat().st_mode) == 0o700
    (first.path / "counter_1.db").touch()
    first.close()
    assert list(place.iterdir()) == [second.path]
    second.close()


def test_what_the_killed_have_left_goes_when_the_next_one_starts(place: Path, tmp_path: Path) -> None:
    killed, alive = MemoryFolder(tmp_path / "disk"), MemoryFolder(tmp_path / "disk")
    os.close(killed._kept)
    young = place / f"plaza-{os.getuid()}-just-being-made"
    young.mkdir()
    (place / "somebody-elses").mkdir()
    next_one = MemoryFolder(tmp_path / "disk")
    assert {folder.name for folder in place.iterdir()} == {
        alive.path.name, young.name, next_one.path.name, "somebody-elses"
    }  # fmt: skip
    alive.close()
    next_one.close()


def test_without_such_a_place_the_disk_has_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory_dir, "PLACE", tmp_path / "there is none")
    folder = MemoryFolder(tmp_path / "disk")
    assert folder.path == tmp_path / "disk"
    folder.close()
    assert not folder.path.exists()
