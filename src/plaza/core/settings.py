"""All settings, read once from environment variables.

Each field has its help text; `docs/settings.md` is generated from the fields, so every setting is documented.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

import msgspec

from plaza.core.errors import SettingError

# RFC 7518 requires at least the size of the hash for HS256.
SECRET_BYTES = 32
# A shorter key could be guessed. It causes only a warning, because it may be in use already.
API_KEY_CHARACTERS = 16

Fsync = Literal["everysec", "always"]
LiveAddress = Literal["full", "truncated", "hashed"]
AccountAddress = Literal["full", "truncated"]
MetricsAccess = Literal["public", "admin"]
DemoMode = Literal["auto", "on", "off"]
MediaServing = Literal["stream", "redirect"]


def setting(default: Any, help: str) -> Any:
    """A field that is read from `PLAZA_<NAME>`. `help` is its description in the docs."""
    return field(default=default, metadata={"help": help})


# An empty Plaza needs a few megabytes, and its Lua libraries some more.
MIN_MAXMEMORY_BYTES = 32 * 1024 * 1024
_MEMORY = re.compile(r"(\d{1,15})(kb|mb|gb|)")
_MEMORY_UNITS = {"": 1, "kb": 1024, "mb": 1024**2, "gb": 1024**3}
_MAXMEMORY = "must be at least 32mb, as bytes or with kb, mb or gb"


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a process."""

    host: str = setting("127.0.0.1", "Address the API listens on.")
    port: int = setting(8000, "Port the API listens on; 0 picks a free one.")
    data_dir: Path = setting(Path("var"), "Directory of the embedded Valkey, SQLite and generated secrets.")
    valkey_url: str = setting(
        "",
        "Empty: an embedded Valkey in the data directory. Else `valkey://`, `redis://`, `rediss://`, `unix://`, "
        "or `valkey+cluster://host:port,host:port`.",
    )
    valkey_maxmemory: str = setting(
        "",
        "Memory of the embedded Valkey, such as `2gb`. When it is used up, writes are refused with 503 and nothing is "
        "deleted. Empty: three quarters of the memory of the machine or container.",
    )
    database_url: str = setting("", "Empty: SQLite in the data directory. Else `postgresql://…`.")
    jwt_secret: str = setting(
        "", "Signs access tokens; at least 32 bytes. Empty: generated once and stored in the data directory, mode 600."
    )
    api_key: str = setting(
        "",
        "Key with admin rights for servers; fewer than 16 characters cause a warning at start. "
        "Empty: generated once and stored in the data directory, mode 600.",
    )
    data_key: str = setting(
        "",
        "Encrypts stored secrets and identity numbers of profiles; at least 32 bytes. "
        "Empty: generated once and stored in the data directory, mode 600. Back it up: without it they are unreadable.",
    )
    data_key_old: tuple[str, ...] = setting(
        (), "Earlier data keys, separated by commas: they decrypt what is not yet encrypted with the present one."
    )
    jwt_public_key: Path | None = setting(None, "PEM file of another issuer's public key (RS256 or ES256).")
    public_url: str = setting(
        "", "URL under which users reach Plaza, for links in mails. Empty: `http://` and the address it listens on."
    )
    root_path: str = setting(
        "",
        "Path under which users reach Plaza behind a proxy or in another application, such as `/community`. "
        "Empty: the path of `PLAZA_PUBLIC_URL`, else the `root_path` that the ASGI server reports.",
    )
    oidc_issuer: str = setting("", "Address of an OpenID provider that users may sign in with. Empty: none.")
    oidc_client_id: str = setting("", "Plaza's client id at that provider.")
    oidc_client_secret: str = setting("", "Plaza's client secret at that provider.")
    require_admin_mfa: bool = setting(
        False, "`on`: admins use their rights only with a second factor (codes or a passkey). API keys need none."
    )
    smtp_url: str = setting(
        "",
        "Mail server: `smtp://user:password@host:587?from=plaza@example.org` or `smtps://…`. "
        "Empty: mails are written as files in the data directory.",
    )
    fsync: Fsync = setting(
        "everysec",
        "`everysec`: a crash of the machine loses at most a second of writes. "
        "`always`: a write is acknowledged only when it is on disk.",
    )
    wait_replicas: int = setting(
        0,
        "Replicas of each primary that must confirm a write before it is acknowledged; otherwise it is 503 "
        "`not_replicated` after a second. Needs `PLAZA_VALKEY_URL`. 0: acknowledge at once.",
    )
    workers: int = setting(1, "Number of API processes.")
    connections_per_address: int = setting(
        1_000, "Connections that one address may have open per API process; at most half of the file descriptors."
    )
    rate_limits: bool = setting(True, "`off` disables rate and connection limits, for load tests.")
    queue_ms: int = setting(
        400,
        "Milliseconds that a read waits for its start at most when an API process is overloaded; writes wait twice as "
        "long. Then they get 503 with `Retry-After`. 0: without limit.",
    )
    stop_delay_seconds: int = setting(
        0,
        "Seconds that a stopping server goes on serving while `/readyz` is 503, so that a proxy sends its requests "
        "elsewhere before connections close. 3 behind a proxy that checks every second.",
    )
    metrics_access: MetricsAccess = setting(
        "public", "Who may read `/metrics`: `public`, or `admin` for admins and API keys."
    )
    otlp_endpoint: str = setting(
        "",
        "Address of an OpenTelemetry collector for traces, by OTLP over HTTP, such as `http://127.0.0.1:4318`. "
        "Needs `plaza[otel]`. Empty: no traces.",
    )
    otlp_sampling: float = setting(
        0.1, "Share of requests, jobs and webhook deliveries that are traced; 0.1 is one in ten."
    )
    webhooks_private: bool = setting(
        False, "`on` allows webhooks to plain http and to private addresses, such as those of your own network."
    )
    events_days: int = setting(7, "Days that events stay in their streams.")
    events_max: int = setting(1_000_000, "Events that a domain's streams have at most; a million take about 150 MB.")
    cors_origins: tuple[str, ...] = setting(
        (), "Origins whose pages may send requests, separated by commas; `*` for all."
    )
    trusted_proxies: tuple[str, ...] = setting(
        (),
        "Addresses or networks of proxies whose `X-Forwarded-For` and country header are trusted, separated by commas.",
    )
    geoip: Path | None = setting(None, "MaxMind DB file (`.mmdb`) that gives a viewer's country.")
    live_address: LiveAddress = setting(
        "truncated", "How a viewer's address is stored: `full`, `truncated` or `hashed` with a daily salt."
    )
    account_address: AccountAddress = setting(
        "truncated",
        "How addresses are stored in sessions and in the security log: `truncated` to their network, or `full`.",
    )
    live_retention_days: int = setting(30, "Days after the last heartbeat of an event until its raw keys are deleted.")
    live_max_events: int = setting(
        10_000, "Events with raw keys, above which heartbeats create no more undeclared events."
    )
    live_sources: bool = setting(False, "`on` counts viewing sessions by device and referring site, as players report.")
    live_open: bool = setting(True, "`off` refuses heartbeats for events that were not declared.")
    live_alive_seconds: int = setting(
        65, "How long a viewer counts as present after a heartbeat; longer while clients are asked to send fewer."
    )
    live_beats_per_second: int = setting(
        3000, "Heartbeats per second to aim for; above it, clients are asked to send them less often than every 30 s."
    )
    currency: str = setting(
        "EUR",
        "Currency of all prices, as a code of ISO 4217 such as `USD`. Pages show prices in it; nothing is converted.",
    )
    shop_idle_seconds: int = setting(604_800, "Seconds until a session without requests expires.")
    shop_absolute_seconds: int = setting(2_592_000, "Maximum lifetime of a session in seconds.")
    shop_sessions: int = setting(10_000_000, "Maximum number of sessions; above it the oldest end.")
    domains: tuple[str, ...] = setting(
        (),
        "Domains that run, separated by commas, such as `articles,live`. The others have no routes, pages, keys, jobs "
        "or tables. Empty: all that are installed.",
    )
    voting_days: int = setting(7, "Days during which an article can be voted on; 0 for no limit.")
    max_post_age: int = setting(30, "Days a challenge post stays in the recommendation pool.")
    media_url: str = setting(
        "",
        "Where pictures are stored. Empty: a folder in the data directory. Else `s3://bucket/prefix`, "
        "`gs://bucket/prefix` or `az://container/prefix`, with options of the store such as `?endpoint=…&region=…`. "
        "Credentials come from the provider's own variables, such as `AWS_ACCESS_KEY_ID`.",
    )
    media_serving: MediaServing = setting(
        "stream",
        "How pictures in a bucket are sent: `stream` through Plaza, or `redirect` to an address that the bucket "
        "accepts for a minute.",
    )
    media_max_bytes: int = setting(10_000_000, "Largest picture that can be uploaded, in bytes.")
    media_max_pixels: int = setting(
        40_000_000, "Pixels that an uploaded picture may have; for an animation, all frames together."
    )
    media_daily_uploads: int = setting(200, "Pictures that a user can upload in a day.")
    media_daily_bytes: int = setting(500_000_000, "Bytes that a user can upload in a day.")
    media_quota_bytes: int = setting(1_000_000_000, "Bytes that the stored pictures of a user may have.")
    media_processes: int = setting(2, "Pictures that an API process decodes at the same time.")
    demo: DemoMode = setting(
        "auto",
        "`auto`: the first start with an empty data directory, on a loopback address, loads a small sample community, "
        "whose accounts need no password. `on`: on any address. `off`: never; an existing demo is paused.",
    )

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> Settings:
        """Read the settings from `PLAZA_*` variables. Raises `SettingError` with the variable's name if one is invalid.

        An empty variable counts as not set.
        """
        types = get_type_hints(cls)
        texts = {f.name: environ.get(variable(f.name)) for f in fields(cls)}
        return cls(**{name: _parse(name, types[name], text) for name, text in texts.items() if text})

    def warnings(self) -> list[str]:
        """Warnings about settings that are valid but unsafe, for the log at start. They never contain a value."""
        if self.api_key and len(self.api_key) < API_KEY_CHARACTERS:
            return [f"{variable('api_key')} is shorter than {API_KEY_CHARACTERS} characters and could be guessed."]
        return []

    def secret(self, name: Literal["jwt_secret", "api_key"]) -> str:
        """The configured secret, or the one in the data directory, which is generated on first use."""
        return str(getattr(self, name)) or self._stored(name)

    def data_keys(self) -> list[str]:
        """The keys that decrypt stored values; the first one encrypts.

        The file in the data directory has one key in each line, the present one first. It is read beside the setting
        too, so that a key can move from the file to the setting.
        """
        given = [self.data_key] if self.data_key else []
        stored = self._stored("data_key").splitlines() if not given or self.data_key_file.exists() else []
        return [*given, *stored, *self.data_key_old]

    @property
    def data_key_file(self) -> Path:
        return self.data_dir / "data-key"

    def _stored(self, name: str) -> str:
        path = self.data_dir / name.replace("_", "-")
        try:
            stored = stored_secret(path)
        except OSError as error:
            raise SettingError(f"{path} cannot be used: {error.strerror}. Set {variable(name)}.") from None
        # A full disk or a manual edit can leave a short or empty file, which would let anyone in.
        if not all(map(_is_long, stored.splitlines() or [""])):
            raise SettingError(
                f"{path} is shorter than {SECRET_BYTES} bytes, or a line of it is. Remove it to generate a new one."
            )
        return stored

    @property
    def mount_path(self) -> str:
        """The configured path under which users reach Plaza, without a slash at the end."""
        return (self.root_path or urlsplit(self.public_url).path).rstrip("/")

    @property
    def maxmemory_bytes(self) -> int | None:
        """The memory of the embedded Valkey; None for the default."""
        if not self.valkey_maxmemory:
            return None
        match = _MEMORY.fullmatch(self.valkey_maxmemory.lower())
        _require(match is not None, "valkey_maxmemory", _MAXMEMORY)
        assert match is not None
        return int(match[1]) * _MEMORY_UNITS[match[2]]

    def __post_init__(self) -> None:
        _require(0 <= self.port <= 65535, "port", "must be 0 to 65535")
        _require(_ROOT_PATH.fullmatch(self.root_path) is not None, "root_path", "must be a path such as /community")
        public_path = urlsplit(self.public_url).path.rstrip("/")
        _require(public_path in ("", self.mount_path), "root_path", "must be the path of PLAZA_PUBLIC_URL, or empty")
        _require(0 <= self.wait_replicas <= 100, "wait_replicas", "must be 0 to 100")
        has_replicas = self.wait_replicas == 0 or self.valkey_url != ""
        _require(has_replicas, "wait_replicas", "must be 0 with the embedded Valkey, which has no replicas")
        _require(1 <= self.workers <= 256, "workers", "must be 1 to 256")
        _require(
            self.maxmemory_bytes is None or self.maxmemory_bytes >= MIN_MAXMEMORY_BYTES, "valkey_maxmemory", _MAXMEMORY
        )
        _require(0 <= self.otlp_sampling <= 1, "otlp_sampling", "must be 0 to 1")
        is_address = not self.otlp_endpoint or _HTTP_ADDRESS.fullmatch(self.otlp_endpoint) is not None
        _require(is_address, "otlp_endpoint", "must be an address such as http://127.0.0.1:4318")
        _require(self.connections_per_address >= 1, "connections_per_address", "must be 1 or more")
        _require(0 <= self.queue_ms <= 60_000, "queue_ms", "must be 0 to 60000")
        _require(0 <= self.stop_delay_seconds <= 30, "stop_delay_seconds", "must be 0 to 30")
        _require(0 <= self.voting_days <= 36_500, "voting_days", "must be 0 to 36500")
        _require(1 <= self.max_post_age <= 3650, "max_post_age", "must be 1 to 3650")
        _require(1 <= self.live_retention_days <= 3650, "live_retention_days", "must be 1 to 3650")
        _require(1 <= self.events_days <= 3650, "events_days", "must be 1 to 3650")
        _require(1_000 <= self.events_max <= 10**9, "events_max", "must be 1000 to 1000000000")
        # Clients send heartbeats every 30 s, or every 120 s under load: two intervals and 5 s of grace.
        _require(65 <= self.live_alive_seconds <= 245, "live_alive_seconds", "must be 65 to 245")
        is_code = re.fullmatch("[A-Z]{3}", self.currency) is not None
        _require(is_code, "currency", "must be three capital letters such as EUR")
        _require(self.shop_idle_seconds >= 1, "shop_idle_seconds", "must be 1 or more")
        _require(self.shop_absolute_seconds >= 1, "shop_absolute_seconds", "must be 1 or more")
        _require(self.shop_sessions >= 1, "shop_sessions", "must be 1 or more")
        _require(self.live_beats_per_second >= 1, "live_beats_per_second", "must be 1 or more")
        for name in ("max_bytes", "max_pixels", "daily_uploads", "daily_bytes", "quota_bytes", "processes"):
            _require(getattr(self, f"media_{name}") >= 1, f"media_{name}", "must be 1 or more")
        # An entry that is not an origin would silently match none.
        origins = all(origin == "*" or _ORIGIN.fullmatch(origin) for origin in self.cors_origins)
        _require(origins, "cors_origins", "must be origins such as https://shop.example, or *")
        for name in ("jwt_secret", "data_key"):
            given = getattr(self, name)
            _require(not given or _is_long(given), name, f"must be at least {SECRET_BYTES} bytes")
        _require(
            all(map(_is_long, self.data_key_old)), "data_key_old", f"must be keys of at least {SECRET_BYTES} bytes"
        )


def variable(name: str) -> str:
    """The name of a field's environment variable."""
    return f"PLAZA_{name.upper()}"


def _is_long(secret: str) -> bool:
    return len(secret.encode()) >= SECRET_BYTES


def _require(condition: bool, name: str, rule: str) -> None:
    if not condition:
        raise SettingError(f"{variable(name)} {rule}.")


# A scheme, a host and an optional port. `Cors` removes a final slash.
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@\s]+/?")
# Without user and password: they belong into OTEL_EXPORTER_OTLP_HEADERS.
_HTTP_ADDRESS = re.compile(r"https?://[^/?#@\s]+(?:/[^?#\s]*)?")
_ROOT_PATH = re.compile(r"(?:/[A-Za-z0-9._~-]+)*/?")
_BOOLEANS = {"on": "true", "yes": "true", "off": "false", "no": "false"}  # msgspec knows true, false, 1 and 0


def _parse(name: str, kind: Any, text: str) -> Any:
    """Convert a variable's text to the type of its field."""
    value: Any = _BOOLEANS.get(text.lower(), text) if kind is bool else text
    if get_origin(kind) is tuple:
        value = [part.strip() for part in text.split(",") if part.strip()]
    try:
        return msgspec.convert(value, kind, strict=False, dec_hook=lambda kind, text: kind(text))
    except msgspec.ValidationError:
        raise SettingError(f"{variable(name)} must be {_expected(kind)}.") from None


def _expected(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    return {bool: "on or off", int: "a whole number", float: "a number"}.get(kind, "valid")


def add_data_key(path: Path) -> None:
    """Add a new key before those of a file, in one step: a reader sees the old file or the new one."""
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    _write_secret(fresh, f"{secrets.token_urlsafe(48)}\n{path.read_text()}")
    fresh.replace(path)


def _write_secret(path: Path, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def stored_secret(path: Path, generate: Callable[[], str] = lambda: secrets.token_urlsafe(48)) -> str:
    """Read the secret, or generate it. If several processes start at once, all use the same one."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        _write_secret(fresh, generate())
        try:
            os.link(fresh, path)
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
    return path.read_text().strip()
