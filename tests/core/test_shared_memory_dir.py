"""The shared memory directory is removed with its process, however that ends."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from plaza.core.process import shared_memory_dir
from plaza.core.process.shared_memory_dir import SharedMemoryDir


@pytest.fixture
def shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "memory"
    folder.mkdir()
    monkeypatch.setattr(shared_memory_dir, "SHARED_MEMORY", folder)
    return folder


def test_a_directory_is_private_and_removed_on_close(shared_memory: Path, tmp_path: Path) -> None:
    first, second = SharedMemoryDir(tmp_path / "disk"), SharedMemoryDir(tmp_path / "disk")
    assert {first.path, second.path} == set(shared_memory.iterdir())
    assert stat.S_IMODE(first.path.stat().st_mode) == 0o700
    (first.path / "counter_1.db").touch()
    first.close()
    assert list(shared_memory.iterdir()) == [second.path]
    second.close()


def test_directories_of_killed_processes_are_removed_at_the_next_start(shared_memory: Path, tmp_path: Path) -> None:
    killed, alive = SharedMemoryDir(tmp_path / "disk"), SharedMemoryDir(tmp_path / "disk")
    os.close(killed._lock)
    young = shared_memory / f"plaza-{os.getuid()}-in-creation"
    young.mkdir()
    (shared_memory / "other").mkdir()
    next_one = SharedMemoryDir(tmp_path / "disk")
    assert {folder.name for folder in shared_memory.iterdir()} == {
        alive.path.name, young.name, next_one.path.name, "other"
    }  # fmt: skip
    alive.close()
    next_one.close()


def test_without_shared_memory_a_directory_on_disk_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory_dir, "SHARED_MEMORY", tmp_path / "missing")
    folder = SharedMemoryDir(tmp_path / "disk")
    assert folder.path == tmp_path / "disk"
    folder.close()
    assert not folder.path.exists()
