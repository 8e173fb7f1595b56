"""Settings are read from the environment; an invalid one is refused with its name."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from plaza.core.errors import SettingError
from plaza.core.settings import Settings


def test_an_empty_environment_gives_the_defaults() -> None:
    settings = Settings.from_env({})
    assert settings == Settings()
    assert (settings.host, settings.port, settings.fsync, settings.workers) == ("127.0.0.1", 8000, "everysec", 1)


def test_an_empty_variable_means_the_default() -> None:
    assert Settings.from_env({"PLAZA_PORT": "", "PLAZA_GEOIP": ""}) == Settings()


def test_each_kind_of_value_is_read() -> None:
    settings = Settings.from_env(
        {
            "PLAZA_PORT": "0",
            "PLAZA_DATA_DIR": "/tmp/plaza",
            "PLAZA_RATE_LIMITS": "off",
            "PLAZA_CORS_ORIGINS": "https://a.example, https://b.example,",
            "PLAZA_FSYNC": "always",
            "PLAZA_JWT_PUBLIC_KEY": "issuer.pem",
        }
    )
    assert settings.port == 0
    assert settings.data_dir == Path("/tmp/plaza")
    assert settings.rate_limits is False
    assert settings.cors_origins == ("https://a.example", "https://b.example")
    assert settings.fsync == "always"
    assert settings.jwt_public_key == Path("issuer.pem")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PLAZA_PORT", "http"),
        ("PLAZA_PORT", "70000"),
        ("PLAZA_WORKERS", "0"),
        ("PLAZA_WORKERS", "-1"),
        ("PLAZA_FSYNC", "never"),
        ("PLAZA_RATE_LIMITS", "perhaps"),
        ("PLAZA_LIVE_ADDRESS", "none"),
        ("PLAZA_MAX_POST_AGE", "0"),
        ("PLAZA_VOTING_DAYS", "99999999999999999999"),
        ("PLAZA_CORS_ORIGINS", "shop.example"),
        ("PLAZA_CORS_ORIGINS", "https://shop.example/app"),
        ("PLAZA_JWT_SECRET", "short"),
    ],
)
def test_a_bad_value_is_refused_with_its_name_and_without_echoing_a_secret(name: str, value: str) -> None:
    with pytest.raises(SettingError, match=name) as caught:
        Settings.from_env({name: value})
    assert "short" not in str(caught.value)


def test_only_a_short_configured_api_key_causes_a_warning() -> None:
    assert "PLAZA_API_KEY" in Settings(api_key="k" * 15).warnings()[0]
    for key in ("k" * 16, ""):
        assert Settings(api_key=key).warnings() == []


def test_a_secret_is_generated_once_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "var")
    with ThreadPoolExecutor(16) as pool:
        made = set(pool.map(lambda _: settings.secret("api_key"), range(64)))
    assert len(made) == 1
    assert len(made.pop()) >= 32
    key_file = tmp_path / "var" / "api-key"
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    assert [p.name for p in key_file.parent.iterdir()] == ["api-key"]


def test_a_configured_secret_wins_and_leaves_no_file(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, jwt_secret="x" * 32)
    assert settings.secret("jwt_secret") == "x" * 32
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("left", ["", "\n", "abc\n"])
def test_an_empty_or_short_secret_file_stops_the_start(tmp_path: Path, left: str) -> None:
    (tmp_path / "api-key").write_text(left)
    with pytest.raises(SettingError, match="api-key is shorter"):
        Settings(data_dir=tmp_path).secret("api_key")


def test_an_unusable_secret_file_is_reported_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingError, match=r"jwt-secret cannot be used.*PLAZA_JWT_SECRET"):
        Settings(data_dir=tmp_path / "file").secret("jwt_secret")
