"""Explains `WRONGTYPE` errors: another service wrote a key with the wrong type.

A request that only reads takes the key as absent (`valkey/absent_replies.py`, and `run_query` of the prelude). A write
that needs it fails until `plaza audit --repair` repairs it. Valkey does not name the key in its error. So the types of
all words of the command that match the catalogue are read, and of every key without parts in its name, because on one
server a function uses more keys than it is given. That costs one round trip, only after such an error.

The client gets a 409 that names the key and has the advice for the operator; a retry does not help. If the name has a
session token or the key is secret, the response and the log name only the family, which is documented.

Missing permissions of the Valkey user are reported in the same way, since only an operator can fix them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import monotonic
from typing import Final, TypeGuard

import structlog

from plaza.core import metrics
from plaza.core.errors import PlazaError, Unavailable
from plaza.core.keyspace import Catalogue, Key, KeyAccess
from plaza.core.valkey import ReplyError, Valkey
from plaza.core.valkey.calls import command_words

# Words of a command that are checked; its keys come first.
MAX_WORDS: Final = 500
# A key is logged at most this often, not at every request that needs it.
LOG_EVERY_SECONDS: Final = 60.0
MAX_LOGGED_NAMES: Final = 1_000

_ADVICE: Final = "The operator can find it with `plaza audit` and fix it with `plaza audit --repair`."

log = structlog.get_logger("plaza.wrong_type")

ExplainError = Callable[[Exception], Awaitable[Exception]]


class WrongKeyType(PlazaError):
    status, title, code = 409, "Stored data is damaged", "damaged_key"


class ValkeyAccessDenied(Unavailable):
    """The Valkey user lacks a permission. An operator can grant it."""

    title, code = "Valkey denies a command that this needs", "denied"


async def unexplained(error: Exception) -> Exception:
    """Return the error unchanged, where there is no catalogue."""
    return error


class WrongTypeReporter:
    """Finds the key of a `WRONGTYPE` error, and logs it."""

    def __init__(self, valkey: Valkey, catalogues: Sequence[Catalogue]) -> None:
        self._valkey = valkey
        self._catalogues = catalogues
        self._fixed_names = {key(): key for catalogue in catalogues for _, key in catalogue if not key.parts}

    async def explain(self, error: Exception) -> Exception:
        """Return the error, or a clearer one for a wrong type (one round trip) or a missing permission."""
        if isinstance(error, ReplyError) and error.code in ("NOPERM", "NOAUTH"):
            _log_once(error.message, "valkey_permission_denied", message=error.message)
            return ValkeyAccessDenied("The Valkey user of this server lacks a permission.")
        if not is_wrong_type(error):
            return error
        words = command_words(error.sent, MAX_WORDS)
        named = {w: match.key for w in words for catalogue in self._catalogues if (match := catalogue.match(w))}
        found: dict[str, Key] = {}
        with contextlib.suppress(Unavailable):
            found = await find_wrong_types(self._valkey, named | self._fixed_names)
        if not found:
            metrics.DAMAGED_KEYS.labels("unknown").inc()
            _log_once("", "key_wrong_type", family="unknown", message=error.message)
            return WrongKeyType(f"A key that this needs has the wrong type. {_ADVICE}")
        name, key = next(iter(found.items()))
        shown = _shown_name(name, key)
        return WrongKeyType(f"The key {shown} has the wrong type. {_ADVICE}", family=key.pattern, key=shown)


def is_wrong_type(error: BaseException) -> TypeGuard[ReplyError]:
    """Whether an error is `WRONGTYPE`."""
    return isinstance(error, ReplyError) and error.code == "WRONGTYPE"


async def find_wrong_types(valkey: Valkey, names: Mapping[str, Key]) -> dict[str, Key]:
    """Return the keys whose type differs from the catalogue; each is counted and logged. One round trip."""
    found: dict[str, Key] = {}
    types = await valkey.batch([("TYPE", name) for name in names])
    for (name, key), type in zip(names.items(), types, strict=True):
        if type not in ("none", key.type):
            found[name] = key
            metrics.DAMAGED_KEYS.labels(key.pattern).inc()
            shown = _shown_name(name, key)
            _log_once(name, "key_wrong_type", key=shown, family=key.pattern, should_be=key.type, found=type)
    return found


def _shown_name(name: str, key: Key) -> str:
    return key.pattern if key.read is KeyAccess.NONE or "token" in key.parts else name


_LOGGED: Final[dict[str, float]] = {}  # when each name was logged last


def _log_once(name: str, event: str, **fields: str) -> None:
    now = monotonic()
    if name in _LOGGED and now - _LOGGED[name] < LOG_EVERY_SECONDS:
        return
    if len(_LOGGED) >= MAX_LOGGED_NAMES:
        _LOGGED.clear()
    _LOGGED[name] = now
    log.error(event, **fields)
