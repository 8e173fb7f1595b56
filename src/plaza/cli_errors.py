"""Prints the expected errors of a command or a start as one line on stderr, and chooses the exit status.

Status 2 means that the operator must fix something first: a setting, a port in use, missing Valkey permissions, a Plaza
that is older than the data. Status 1 is for all other errors: the request is not possible, or something is down and may
be back soon.
"""

from __future__ import annotations

import errno
import sys
from typing import Final

from plaza.core.errors import OperatorError, OutdatedProcess, PlazaError
from plaza.core.valkey import ReplyError

# Printed as one line. Any other exception is a bug and shows a traceback.
EXPECTED = (OperatorError, PlazaError, ReplyError)

_FREE_SPACE: Final = "Free some space, or use another disk; then repeat it."
_CHANGE_OWNER: Final = "Run this as the user that owns it, or change its permissions."
# Errors of files that an operator can fix, with the fix.
_FILE_FIXES: Final = {
    errno.ENOSPC: _FREE_SPACE,
    errno.EDQUOT: _FREE_SPACE,
    errno.EACCES: _CHANGE_OWNER,
    errno.EPERM: _CHANGE_OWNER,
    errno.EROFS: "Mount it for writing, or use another directory.",
    errno.EIO: "Check the disk.",
    errno.ENOENT: "Check the path.",
    errno.ENOTDIR: "Check the path.",
    errno.EISDIR: "Give a file.",
}


def file_error(error: OSError) -> OperatorError | None:
    """Return what an operator can do about an error of a file; None for other errors."""
    fix = _FILE_FIXES.get(error.errno or 0)
    if fix is None or (error.filename is None and fix is not _FREE_SPACE):
        return None
    file = f"{error.filename}: " if error.filename is not None else ""
    return OperatorError(f"{file}{error.strerror}. {fix}")


def print_error(error: OperatorError | PlazaError | ReplyError) -> int:
    """Print the error. Returns the exit status."""
    print(f"plaza: {_message(error)}", file=sys.stderr, flush=True)
    return 1 if isinstance(error, PlazaError) and not isinstance(error, OutdatedProcess) else 2


def _message(error: OperatorError | PlazaError | ReplyError) -> str:
    if isinstance(error, ReplyError):
        if error.code == "WRONGTYPE":
            return "A key has the wrong type. `plaza audit` names it, and `plaza audit --repair` repairs it."
        return f"Valkey refused a command: {error.message}."
    # A validation message in lower case continues the name of its field; a full sentence names it itself.
    field = error.extra.get("field") if isinstance(error, PlazaError) else None
    return f"{field} {error}" if field and str(error)[:1].islower() else str(error)
