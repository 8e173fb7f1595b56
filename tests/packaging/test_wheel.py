"""Plaza as users install it: from its wheel, without the repository."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.packaging.clean_environment import ROOT, CleanEnvironment, build_wheel
from tests.processes import ServerProcess


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> CleanEnvironment:
    """Plaza without extras."""
    return CleanEnvironment(tmp_path_factory.mktemp("installed"), wheel)


def test_the_wheel_has_every_file_of_the_package(installed: CleanEnvironment) -> None:
    source = ROOT / "src" / "plaza"
    files = {
        path.relative_to(source) for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    }
    missing = [str(name) for name in files if not (installed.packages / "plaza" / name).exists()]
    assert not missing, "add these to package-data in pyproject.toml"


def test_the_installed_plaza_serves(installed: CleanEnvironment, tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "var", python=installed.python).wait_for("Ctrl-C stops it.")
    try:
        with httpx.Client(base_url=server.url) as http:
            for path in (
                "/ping",
                "/readyz",
                "/openapi.json",
                "/docs",
                "/app",
                "/feed/explore",
                "/articles",
                "/shop/items",
            ):
                assert http.get(path, follow_redirects=True).status_code == 200, path
            body = {"username": "ana", "password": "correct horse battery"}
            registered = http.post("/auth/register", json=body)
            assert registered.status_code == 201
            token = {"authorization": f"Bearer {registered.json()['access_token']}"}
            assert http.get("/challenges/recommendations", headers=token).json() == {"posts": []}
            upload = http.post("/media", headers=token, files={"file": ("a.png", b"...")})
            assert upload.json()["code"] == "uploads_off", "pictures need plaza[media]"
    finally:
        assert server.stop() == 0


def test_the_environment_is_clean(installed: CleanEnvironment) -> None:
    assert installed.run("-c", "import importlib.util as u; print(u.find_spec('pytest'))") == "None\n"


def test_the_command_is_installed(installed: CleanEnvironment) -> None:
    assert "serve" in installed.run(installed.python.with_name("plaza"), "--help")
    assert installed.run(installed.python.with_name("plaza"), "--version").startswith("plaza ")


def test_a_setting_that_needs_an_extra_names_it(installed: CleanEnvironment, tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "var", python=installed.python, PLAZA_DATABASE_URL="postgresql://nowhere/plaza")
    assert server.wait() == 2
    assert "pip install 'plaza[postgres]'" in server.errors.read_text()


def test_extras_install_every_optional_part(wheel: Path, tmp_path: Path) -> None:
    everything = CleanEnvironment(tmp_path, wheel, "all")
    program = "from plaza.core.extras import PACKAGES, is_installed; print(all(map(is_installed, PACKAGES)))"
    assert everything.run("-c", program) == "True\n"
