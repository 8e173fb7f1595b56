"""Keys of the wrong type: somebody else wrote one, and whatever needs it fails until `plaza audit --repair` mends it.

Valkey says `WRONGTYPE` and not of which key. The catalogue knows: of all words that were sent, those that name keys are
asked for their types, and so is every key that has no parts in its name, since on one server a function reaches more
than it is told. That costs a round trip, and only where something is broken.

A client learns the family, which is in the documents anyway, and that an operator has to act; trying again helps
nobody, so it is a 500. The name itself may hold what opens a session: it goes to the log, unless nobody may see it.

Rights that Valkey's user has lost are the other thing that only an operator can mend; they are told in the same way.
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

# Words of a command that are looked at; keys come first in it.
MOST_WORDS: Final = 500
# A key that every request needs is told of this often, not by every request.
TOLD_EVERY_SECONDS: Final = 60.0
MOST_TOLD: Final = 1_000

_DAMAGED: Final = "a key has the wrong type; plaza audit --repair mends it"
_ADVICE: Final = "Whoever runs this server finds it by `plaza audit`."

log = structlog.get_logger("plaza.damage")

ExplainError = Callable[[Exception], Awaitable[Exception]]


class WrongKeyType(PlazaError):
    status, title, code = 500, "Stored data is damaged", "damaged_key"


class ValkeyAccessDenied(Unavailable):
    """Valkey's user may not do what this needs: an operator has changed its rights, and can give them back."""

    title, code = "Valkey refuses what this needs", "denied"


async def unexplained(error: Exception) -> Exception:
    """For who knows no catalogue."""
    return error


class WrongTypeReporter:
    """Finds out which key it was, and tells who can do something about it."""

    def __init__(self, valkey: Valkey, catalogues: Sequence[Catalogue]) -> None:
        self._valkey = valkey
        self._catalogues = catalogues
        self._always = {key(): key for catalogue in catalogues for _, key in catalogue if not key.parts}

    async def explain(self, error: Exception) -> Exception:
        """The error itself, or what it means if Valkey has met a key of the wrong type: one round trip then. Or if it
        does not let us do what we ask for."""
        if isinstance(error, ReplyError) and error.code in ("NOPERM", "NOAUTH"):
            _tell(error.message, "Valkey refuses what a request or a job needs", said=error.message)
            return ValkeyAccessDenied("Valkey does not let this server do that.")
        if not is_wrong_type(error):
            return error
        words = command_words(error.sent, MOST_WORDS)
        named = {w: match.key for w in words for catalogue in self._catalogues if (match := catalogue.match(w))}
        found: dict[str, Key] = {}
        with contextlib.suppress(Unavailable):
            found = await find_wrong_types(self._valkey, named | self._always)
        if not found:
            metrics.DAMAGED_KEYS.labels("unknown").inc()
            _tell("", _DAMAGED, family="unknown", said=error.message)
            return WrongKeyType(f"A key behind this has the wrong type. {_ADVICE}")
        family = next(iter(found.values())).pattern
        return WrongKeyType(f"A key of the family {family} has the wrong type. {_ADVICE}", family=family)


def is_wrong_type(error: BaseException) -> TypeGuard[ReplyError]:
    """Whether Valkey has met a key of the wrong type."""
    return isinstance(error, ReplyError) and error.code == "WRONGTYPE"


async def find_wrong_types(valkey: Valkey, names: Mapping[str, Key]) -> dict[str, Key]:
    """Those of some keys that are not what the catalogue says; each is counted and told. One round trip."""
    found: dict[str, Key] = {}
    types = await valkey.batch([("TYPE", name) for name in names])
    for (name, key), type in zip(names.items(), types, strict=True):
        if type not in ("none", key.type):
            found[name] = key
            metrics.DAMAGED_KEYS.labels(key.pattern).inc()
            shown = key.pattern if key.read is KeyAccess.NONE or "token" in key.parts else name
            _tell(name, _DAMAGED, key=shown, family=key.pattern, should_be=key.type, found=type)
    return found


_TOLD: Final[dict[str, float]] = {}  # when each was told last


def _tell(name: str, event: str, **words: str) -> None:
    now = monotonic()
    if name in _TOLD and now - _TOLD[name] < TOLD_EVERY_SECONDS:
        return
    if len(_TOLD) >= MOST_TOLD:
        _TOLD.clear()
    _TOLD[name] = now
    log.error(event, **words)
