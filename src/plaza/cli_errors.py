"""What goes wrong in a command or at a start, as one line on stderr for whoever runs Plaza, and the exit status.

2 is for what somebody must put right, so that trying again is of no use: a setting, a taken port, rights that Valkey
does not give. 1 is for the rest: what was asked for cannot be done, or something is away and may be back soon.
"""

from __future__ import annotations

import sys

from plaza.core.errors import OperatorError, PlazaError
from plaza.core.valkey import ReplyError

# What is said in a line; anything else is a bug, and shows where.
FORESEEN = (OperatorError, PlazaError, ReplyError)


def complain(error: OperatorError | PlazaError | ReplyError) -> int:
    """Say it, and give the exit status."""
    print(f"plaza: {_words(error)}", file=sys.stderr, flush=True)
    return 1 if isinstance(error, PlazaError) else 2


def _words(error: OperatorError | PlazaError | ReplyError) -> str:
    if isinstance(error, ReplyError):
        if error.code == "WRONGTYPE":
            return "A key has the wrong type. `plaza audit` names it, and mends it with --repair."
        return f"Valkey refuses: {error.message}."
    # A rule begins with the field it is about; a whole sentence names it itself.
    field = error.extra.get("field") if isinstance(error, PlazaError) else None
    return f"{field} {error}" if field and str(error)[:1].islower() else str(error)
