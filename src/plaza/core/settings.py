"""Every setting Plaza has, in one place, read once from the environment.

A setting is a field with its environment variable's help beside it; the table in `docs/settings.md` is made
from these fields, so a setting that is not documented cannot exist.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from plaza.core.errors import SettingError

# HS256 is only as strong as its key: RFC 7518 asks for at least the hash's own size.
SECRET_BYTES = 32
# A shorter key can be guessed by who is patient. It is only warned of, since others may have given it out long ago.
API_KEY_CHARACTERS = 16

Fsync = Literal["everysec", "always"]
LiveAddress = Literal["full", "truncated", "hashed"]
DemoMode = Literal["auto", "on", "off"]


def setting(default: Any, help: str) -> Any:
    """A field read from `PLAZA_<NAME>`; `help` is its line in the docs."""
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True, slots=True)
class Settings:
    host: str = setting("127.0.0.1", "Address the API listens on.")
    port: int = setting(8000, "Port the API listens on; 0 picks a free one.")
    data_dir: Path = setting(Path("var"), "Where the embedded Valkey, SQLite and the made secrets live.")
    valkey_url: str = setting(
        "",
        "Empty: an embedded Valkey in the data directory. Else `valkey://`, `redis://`, `rediss://`, `unix://`, "
        "or `valkey+cluster://host:port,host:port`.",
    )
    database_url: str = setting("", "Empty: SQLite in the data directory. Else `postgresql://…`.")
    jwt_secret: str = setting(
        "", "Signs our tokens; 32 bytes at least. Empty: made once, kept in the data directory, mode 600."
    )
    api_key: str = setting(
        "",
        "Admin rights for servers; fewer than 16 characters are warned of at start. "
        "Empty: made once, kept in the data directory, mode 600.",
    )
    data_key: str = setting(
        "",
        "Encrypts stored secrets such as second factors; 32 bytes at least. "
        "Empty: made once, kept in the data directory, mode 600. Keep a copy: without it they cannot be read.",
    )
    jwt_public_key: Path | None = setting(None, "PEM file of another issuer's public key (RS256 or ES256).")
    public_url: str = setting(
        "", "Address under which users reach Plaza, for links in mails. Empty: `http://` and the address it listens on."
    )
    smtp_url: str = setting(
        "",
        "Mail server: `smtp://user:password@host:587?from=plaza@example.org` or `smtps://…`. "
        "Empty: mails are files in the data directory.",
    )
    fsync: Fsync = setting(
        "everysec",
        "`everysec`: up to a second may be lost if the machine dies. "
        "`always`: a write is acknowledged only when it is on disk.",
    )
    workers: int = setting(1, "API processes.")
    rate_limits: bool = setting(True, "`off` for load tests.")
    cors_origins: tuple[str, ...] = setting((), "Origins that browsers may call from, separated by commas.")
    trusted_proxies: tuple[str, ...] = setting(
        (),
        "Addresses or networks whose `X-Forwarded-For` and country header are believed, separated by commas.",
    )
    geoip: Path | None = setting(None, "GeoIP file that gives a viewer's country.")
    live_address: LiveAddress = setting(
        "full", "How a viewer's address is stored: `full`, `truncated` or `hashed` with a daily salt."
    )
    live_retention_days: int = setting(30, "Days after an event falls silent until its raw keys go.")
    live_open: bool = setting(True, "`off` refuses heartbeats for events nobody declared.")
    live_alive_seconds: int = setting(
        65, "How long a heartbeat keeps a viewer alive; longer by itself while viewers are told to beat less often."
    )
    live_beats_per_second: int = setting(
        3000, "Heartbeats wanted at most; beyond that, viewers are told to beat less often than every 30 s."
    )
    shop_idle_seconds: int = setting(604_800, "How long a shop session lives without a request.")
    shop_absolute_seconds: int = setting(2_592_000, "How long a shop session lives at most.")
    shop_sessions: int = setting(10_000_000, "Shop sessions kept; beyond it the oldest end.")
    voting_days: int = setting(7, "Days an article can be voted on; 0 means for ever.")
    max_post_age: int = setting(30, "Days a challenge post stays in the recommendation pool.")
    demo: DemoMode = setting(
        "auto",
        "`auto`: a first start with nothing in the data directory, on a loopback address, brings a small community to "
        "look at, whose accounts open without a password. `on`: on any address. `off`: never, and one that is there "
        "stands still.",
    )

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> Settings:
        """The settings that `PLAZA_*` variables say; a bad value is refused with its name."""
        given: dict[str, Any] = {}
        for f in fields(cls):
            text = environ.get(variable(f.name))
            if text is not None and text != "":
                given[f.name] = _parse(f.name, str(f.type), text)
        return cls(**given)

    def doubts(self) -> list[str]:
        """What can be done and should not be: said in the log at start, never with a value."""
        if self.api_key and len(self.api_key) < API_KEY_CHARACTERS:
            return [f"{variable('api_key')} is shorter than {API_KEY_CHARACTERS} characters and may be guessed."]
        return []

    def secret(self, name: Literal["jwt_secret", "api_key", "data_key"]) -> str:
        """The configured secret, or the one kept in the data directory, made on first use."""
        if given := str(getattr(self, name)):
            return given
        path = self.data_dir / name.replace("_", "-")
        try:
            kept = _kept_secret(path)
        except OSError as error:
            raise SettingError(f"{path} cannot be used: {error.strerror}. Set {variable(name)}.") from None
        # What is empty or cut short would let anyone in; a file can be so after a full disk or a careless hand.
        if len(kept.encode()) < SECRET_BYTES:
            raise SettingError(f"{path} is shorter than {SECRET_BYTES} bytes. Remove it to have a new one.")
        return kept

    def __post_init__(self) -> None:
        _require(0 <= self.port <= 65535, "port", "must be 0 to 65535")
        _require(1 <= self.workers <= 256, "workers", "must be 1 to 256")
        _require(0 <= self.voting_days <= 36_500, "voting_days", "must be 0 to 36500")
        _require(1 <= self.max_post_age <= 3650, "max_post_age", "must be 1 to 3650")
        _require(1 <= self.live_retention_days <= 3650, "live_retention_days", "must be 1 to 3650")
        # Beats come every 30 s: a shorter window would lose viewers who do as asked. The longest is that of 120 s.
        _require(65 <= self.live_alive_seconds <= 245, "live_alive_seconds", "must be 65 to 245")
        _require(self.shop_idle_seconds >= 1, "shop_idle_seconds", "must be 1 or more")
        _require(self.shop_absolute_seconds >= 1, "shop_absolute_seconds", "must be 1 or more")
        _require(self.shop_sessions >= 1, "shop_sessions", "must be 1 or more")
        _require(self.live_beats_per_second >= 1, "live_beats_per_second", "must be 1 or more")
        # What is no origin would match none, and say nothing about it.
        origins = all(origin == "*" or _ORIGIN.fullmatch(origin) for origin in self.cors_origins)
        _require(origins, "cors_origins", "must be origins such as https://shop.example, or *")
        for name in ("jwt_secret", "data_key"):
            given = getattr(self, name)
            _require(not given or len(given.encode()) >= SECRET_BYTES, name, f"must be at least {SECRET_BYTES} bytes")


def variable(name: str) -> str:
    """The environment variable of a field."""
    return f"PLAZA_{name.upper()}"


def _require(true: bool, name: str, rule: str) -> None:
    if not true:
        raise SettingError(f"{variable(name)} {rule}.")


# A scheme, a host and perhaps a port; the slash that people copy along is taken off where origins are compared.
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@\s]+/?")
_SWITCH = {
    "on": True,
    "true": True,
    "1": True,
    "yes": True,
    "off": False,
    "false": False,
    "0": False,
    "no": False,
}
_CHOICES = {
    "Fsync": ("everysec", "always"),
    "LiveAddress": ("full", "truncated", "hashed"),
    "DemoMode": ("auto", "on", "off"),
}


def _parse(name: str, kind: str, text: str) -> Any:
    if kind == "bool":
        _require(text.lower() in _SWITCH, name, "must be on or off")
        return _SWITCH[text.lower()]
    if kind == "int":
        _require(text.isascii() and text.isdigit(), name, "must be a whole number, not below 0")
        return int(text)
    if kind.startswith("Path"):
        return Path(text)
    if kind.startswith("tuple"):
        return tuple(part for part in (p.strip() for p in text.split(",")) if part)
    if kind in _CHOICES:
        _require(text in _CHOICES[kind], name, f"must be one of {', '.join(_CHOICES[kind])}")
    return text


def _kept_secret(path: Path) -> str:
    """Read the secret, or make it so that of many processes starting at once exactly one's is kept."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(secrets.token_urlsafe(48))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(fresh, path)
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
    return path.read_text().strip()
